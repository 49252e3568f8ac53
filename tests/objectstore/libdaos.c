/* Stand-in for the calls of libdaos that hepcache uses, in memory, with DAOS 2's
 * structures: objects with distribution keys, these with attribute keys, and these
 * with an array of bytes or a single value. As DAOS does, it gives zeros for records
 * that nobody wrote, refuses to give a part of a single value, says how large one is,
 * and takes only 64-bit integers as keys of objects of that type. Pool: "hep". */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { uint64_t cookie; } daos_handle_t;
typedef struct { uint64_t lo, hi; } daos_obj_id_t;
typedef struct { void *iov_buf; size_t iov_buf_len, iov_len; } d_iov_t;
typedef struct { uint32_t sg_nr, sg_nr_out; d_iov_t *sg_iovs; } d_sg_list_t;
typedef struct { uint64_t rx_idx, rx_nr; } daos_recx_t;
typedef struct {
  d_iov_t iod_name; int iod_type; uint64_t iod_size, iod_flags; unsigned iod_nr;
  daos_recx_t *iod_recxs;
} daos_iod_t;
typedef struct { uint64_t kd_key_len; uint32_t kd_val_type; } daos_key_desc_t;
typedef struct {
  uint16_t da_type, da_shard; uint32_t da_flags; uint64_t da_sub_anchors; uint8_t da_buf[104];
} daos_anchor_t;

enum { NO_PERM = -1001, INVAL = -1003, EXIST = -1004, NONEXIST = -1005, REC2BIG = -2013 };
typedef struct value {
  struct value *next; uint8_t *name; size_t name_size; int type; uint8_t *bytes; size_t size;
} value;
typedef struct key { struct key *next; uint8_t *name; size_t size; value *values; } key;
typedef struct object { struct object *next; char label[64]; daos_obj_id_t id; key *keys; } object;
typedef struct cont { struct cont *next; char label[64]; } cont;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static object *objects;
static cont *conts;

int daos_init(void) { return 0; }
int daos_pool_connect2(const char *pool, const char *sys, unsigned flags, daos_handle_t *poh,
                       void *info, void *ev) {
  if (sys || info || ev || flags != 2) return INVAL;
  if (!strcmp(pool, "secret")) return NO_PERM;
  poh->cookie = 7;
  return strcmp(pool, "hep") ? NONEXIST : 0;
}
int daos_pool_disconnect(daos_handle_t poh, void *ev) { return poh.cookie == 7 ? 0 : INVAL; }
int daos_cont_create_with_label(daos_handle_t poh, const char *label, void *p, void *u, void *ev) {
  for (cont *c = conts; c; c = c->next) if (!strcmp(c->label, label)) return EXIST;
  cont *c = calloc(1, sizeof *c);
  strncpy(c->label, label, 63);
  c->next = conts; conts = c;
  return poh.cookie == 7 ? 0 : INVAL;
}
int daos_cont_open2(daos_handle_t poh, const char *label, unsigned flags, daos_handle_t *coh,
                    void *info, void *ev) {
  if (poh.cookie != 7 || flags != 2) return INVAL;
  for (cont *c = conts; c; c = c->next)
    if (!strcmp(c->label, label)) { coh->cookie = (uint64_t)c; return 0; }
  return NONEXIST;
}
int daos_cont_close(daos_handle_t coh, void *ev) { return coh.cookie ? 0 : INVAL; }
int daos_oclass_name2id(const char *name) {
  return !strcmp(name, "SX") ? 0x1ffff : !strcmp(name, "RP_2GX") ? 0x2ffff : 0;
}
int daos_obj_generate_oid(daos_handle_t coh, daos_obj_id_t *oid, int type, uint32_t cid,
                          uint16_t hints, uint32_t args) {
  if (oid->hi >> 32 || (type && type != 4) || !cid) return INVAL;
  oid->hi |= (uint64_t)type << 56 | (uint64_t)cid << 32;
  return 0;
}
int daos_obj_open(daos_handle_t coh, daos_obj_id_t id, unsigned mode, daos_handle_t *oh, void *ev) {
  const char *label = ((cont *)coh.cookie)->label;
  if (mode != 4) return INVAL;
  for (object *o = objects; o; o = o->next)
    if (!strcmp(o->label, label) && o->id.lo == id.lo && o->id.hi == id.hi) {
      oh->cookie = (uint64_t)o;
      return 0;
    }
  object *o = calloc(1, sizeof *o);
  strcpy(o->label, label);
  o->id = id; o->next = objects; objects = o;
  oh->cookie = (uint64_t)o;
  return 0;
}
int daos_obj_close(daos_handle_t oh, void *ev) { return oh.cookie ? 0 : INVAL; }

static key *find_key(object *o, d_iov_t *name, int make) {
  for (key *k = o->keys; k; k = k->next)
    if (k->size == name->iov_len && !memcmp(k->name, name->iov_buf, k->size)) return k;
  if (!make) return NULL;
  key *k = calloc(1, sizeof *k);
  k->name = malloc(name->iov_len);
  memcpy(k->name, name->iov_buf, k->size = name->iov_len);
  k->next = o->keys;
  return o->keys = k;
}
static value *find_value(key *k, d_iov_t *name, int make) {
  for (value *v = k->values; v; v = v->next)
    if (v->name_size == name->iov_len && !memcmp(v->name, name->iov_buf, name->iov_len)) return v;
  if (!make) return NULL;
  value *v = calloc(1, sizeof *v);
  v->name = malloc(name->iov_len);
  memcpy(v->name, name->iov_buf, v->name_size = name->iov_len);
  v->next = k->values;
  return k->values = v;
}
static int integers(object *o) { return o->id.hi >> 56 == 4; }
static int single(value *v, daos_iod_t *iod, d_sg_list_t *sgl, int update) {
  if (iod->iod_nr != 1 || iod->iod_recxs) return INVAL;
  if (!sgl) return update ? INVAL : (iod->iod_size = v->size, 0);
  if (update) {
    uint8_t *into = v->bytes = realloc(v->bytes, v->size = iod->iod_size);
    for (unsigned j = 0; j < sgl->sg_nr; into += sgl->sg_iovs[j++].iov_len)
      memcpy(into, sgl->sg_iovs[j].iov_buf, sgl->sg_iovs[j].iov_len);
    return 0;
  }
  if (sgl->sg_nr != 1) return INVAL;
  if (v->size > iod->iod_size) return iod->iod_size = v->size, REC2BIG;
  memcpy(sgl->sg_iovs->iov_buf, v->bytes, iod->iod_size = v->size);
  return 0;
}
static void copy(value *v, uint64_t at, d_iov_t *iov, uint64_t nr, int update) {
  if (update) {
    if (v->size < at + nr) {
      v->bytes = realloc(v->bytes, at + nr);
      memset(v->bytes + v->size, 0, at + nr - v->size);
      v->size = at + nr;
    }
    memcpy(v->bytes + at, iov->iov_buf, nr);
    return;
  }
  memset(iov->iov_buf, 0, nr);
  if (at < v->size) memcpy(iov->iov_buf, v->bytes + at, nr < v->size - at ? nr : v->size - at);
}
static int both(object *o, d_iov_t *dkey, unsigned nr, daos_iod_t *iods, d_sg_list_t *sgls,
                int update, int must) {
  if (integers(o) && dkey->iov_len != 8) return INVAL;
  key *k = find_key(o, dkey, update);
  if (!k && must) return NONEXIST;
  for (unsigned i = 0; i < nr; i++) {
    if (integers(o) && iods[i].iod_name.iov_len != 8) return INVAL;
    value *v = k ? find_value(k, &iods[i].iod_name, update) : NULL;
    if (!v && must) return NONEXIST;
    if (!v) { iods[i].iod_size = 0; continue; }
    if (update) v->type = iods[i].iod_type;
    if (v->type != iods[i].iod_type) return INVAL;
    if (iods[i].iod_type == 1) {
      int done = single(v, &iods[i], sgls ? &sgls[i] : NULL, update);
      if (done) return done;
      continue;
    }
    if (iods[i].iod_type != 2 || iods[i].iod_size != 1 || !sgls || iods[i].iod_nr != sgls[i].sg_nr)
      return INVAL;
    for (unsigned j = 0; j < iods[i].iod_nr; j++)
      copy(v, iods[i].iod_recxs[j].rx_idx, &sgls[i].sg_iovs[j], iods[i].iod_recxs[j].rx_nr, update);
  }
  return 0;
}
int daos_obj_update(daos_handle_t oh, daos_handle_t th, uint64_t flags, d_iov_t *dkey, unsigned nr,
                    daos_iod_t *iods, d_sg_list_t *sgls, void *ev) {
  pthread_mutex_lock(&lock);
  int done = both((object *)oh.cookie, dkey, nr, iods, sgls, 1, 1);
  pthread_mutex_unlock(&lock);
  return done;
}
int daos_obj_fetch(daos_handle_t oh, daos_handle_t th, uint64_t flags, d_iov_t *dkey, unsigned nr,
                   daos_iod_t *iods, d_sg_list_t *sgls, void *ioms, void *ev) {
  int must = flags == ((1 << 3) | (1 << 6));
  if (flags && !must) return INVAL;
  pthread_mutex_lock(&lock);
  int done = both((object *)oh.cookie, dkey, nr, iods, sgls, 0, must);
  pthread_mutex_unlock(&lock);
  return done;
}
int daos_obj_punch_dkeys(daos_handle_t oh, daos_handle_t th, uint64_t flags, unsigned nr,
                         d_iov_t *dkeys, void *ev) {
  pthread_mutex_lock(&lock);
  key **at = &((object *)oh.cookie)->keys;
  while (*at && !((*at)->size == dkeys->iov_len && !memcmp((*at)->name, dkeys->iov_buf, (*at)->size)))
    at = &(*at)->next;
  if (*at) *at = (*at)->next;
  pthread_mutex_unlock(&lock);
  return 0;
}
int daos_obj_punch_akeys(daos_handle_t oh, daos_handle_t th, uint64_t flags, d_iov_t *dkey,
                         unsigned nr, d_iov_t *akeys, void *ev) {
  pthread_mutex_lock(&lock);
  key *k = find_key((object *)oh.cookie, dkey, 0);
  for (unsigned i = 0; k && i < nr; i++)
    for (value **at = &k->values; *at; at = &(*at)->next)
      if (*at == find_value(k, &akeys[i], 0)) { *at = (*at)->next; break; }
  pthread_mutex_unlock(&lock);
  return 0;
}
/* A listing is given in pages of three keys, so that it has several. */
static int listed(int count, void *first, uint32_t *nr, daos_key_desc_t *kds, d_sg_list_t *sgl,
                  daos_anchor_t *anchor, int of_values) {
  uint64_t skip = 0, at = 0;
  uint32_t found = 0;
  uint8_t *into = sgl->sg_iovs->iov_buf;
  memcpy(&skip, anchor->da_buf, 8);
  for (void *one = first; one && found < 3 && found < *nr; at++) {
    size_t size = of_values ? ((value *)one)->name_size : ((key *)one)->size;
    if (at >= skip) {
      memcpy(into, of_values ? ((value *)one)->name : ((key *)one)->name, size);
      into += size;
      kds[found++].kd_key_len = size;
    }
    one = of_values ? (void *)((value *)one)->next : (void *)((key *)one)->next;
  }
  memcpy(anchor->da_buf, &at, 8);
  anchor->da_type = at < (uint64_t)count ? 1 : 3;
  *nr = found;
  return 0;
}
int daos_obj_list_dkey(daos_handle_t oh, daos_handle_t th, uint32_t *nr, daos_key_desc_t *kds,
                       d_sg_list_t *sgl, daos_anchor_t *anchor, void *ev) {
  int count = 0;
  pthread_mutex_lock(&lock);
  key *first = ((object *)oh.cookie)->keys;
  for (key *k = first; k; k = k->next) count++;
  int done = listed(count, first, nr, kds, sgl, anchor, 0);
  pthread_mutex_unlock(&lock);
  return done;
}
int daos_obj_list_akey(daos_handle_t oh, daos_handle_t th, d_iov_t *dkey, uint32_t *nr,
                       daos_key_desc_t *kds, d_sg_list_t *sgl, daos_anchor_t *anchor, void *ev) {
  int count = 0, done = NONEXIST;
  pthread_mutex_lock(&lock);
  key *k = find_key((object *)oh.cookie, dkey, 0);
  if (k) {
    for (value *v = k->values; v; v = v->next) count++;
    done = listed(count, k->values, nr, kds, sgl, anchor, 1);
  }
  pthread_mutex_unlock(&lock);
  return done;
}

/* No call of libdaos: gives the single values of all objects of a container, one at a time. */
int standin_value(const char *label, uint64_t number, uint64_t *keys, void **bytes, size_t *size) {
  for (object *o = objects; o; o = o->next)
    for (key *k = strcmp(o->label, label) || !integers(o) ? NULL : o->keys; k; k = k->next)
      for (value *v = k->values; v; v = v->next) {
        if (v->type != 1 || number--) continue;
        keys[0] = o->id.lo; keys[1] = o->id.hi;
        memcpy(&keys[2], k->name, 8); memcpy(&keys[3], v->name, 8);
        *bytes = v->bytes; *size = v->size;
        return 1;
      }
  return 0;
}
