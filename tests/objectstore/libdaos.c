/* Stand-in for the calls of libdaos that hepcache uses, in memory, with DAOS 2's
 * structures: keys of one object, each with an array of bytes and a single value.
 * As DAOS does, it gives zeros for records that nobody wrote. Pool: "hep". */
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

enum { NO_PERM = -1001, INVAL = -1003, EXIST = -1004, NONEXIST = -1005 };
typedef struct value { struct value *next; char name[8]; uint8_t *bytes; size_t size; } value;
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
  return !strcmp(name, "SX") ? 0x100ffff : !strcmp(name, "RP_2GX") ? 0x200ffff : 0;
}
int daos_obj_generate_oid(daos_handle_t coh, daos_obj_id_t *oid, int type, uint32_t cid,
                          uint16_t hints, uint32_t args) {
  if (oid->hi >> 32 || type || !cid) return INVAL;
  oid->hi |= (uint64_t)cid << 32;
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
    if (strlen(v->name) == name->iov_len && !memcmp(v->name, name->iov_buf, name->iov_len)) return v;
  if (!make) return NULL;
  value *v = calloc(1, sizeof *v);
  memcpy(v->name, name->iov_buf, name->iov_len);
  v->next = k->values;
  return k->values = v;
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
                int update) {
  key *k = find_key(o, dkey, update);
  if (!k) return NONEXIST;
  for (unsigned i = 0; i < nr; i++) {
    value *v = find_value(k, &iods[i].iod_name, update);
    if (!v) return NONEXIST;
    if (iods[i].iod_type == 1) {
      if (iods[i].iod_nr != 1 || sgls[i].sg_nr != 1) return INVAL;
      copy(v, 0, sgls[i].sg_iovs, iods[i].iod_size, update);
      continue;
    }
    if (iods[i].iod_type != 2 || iods[i].iod_size != 1 || iods[i].iod_nr != sgls[i].sg_nr)
      return INVAL;
    for (unsigned j = 0; j < iods[i].iod_nr; j++)
      copy(v, iods[i].iod_recxs[j].rx_idx, &sgls[i].sg_iovs[j], iods[i].iod_recxs[j].rx_nr, update);
  }
  return 0;
}
int daos_obj_update(daos_handle_t oh, daos_handle_t th, uint64_t flags, d_iov_t *dkey, unsigned nr,
                    daos_iod_t *iods, d_sg_list_t *sgls, void *ev) {
  pthread_mutex_lock(&lock);
  int done = both((object *)oh.cookie, dkey, nr, iods, sgls, 1);
  pthread_mutex_unlock(&lock);
  return done;
}
int daos_obj_fetch(daos_handle_t oh, daos_handle_t th, uint64_t flags, d_iov_t *dkey, unsigned nr,
                   daos_iod_t *iods, d_sg_list_t *sgls, void *ioms, void *ev) {
  if (flags != ((1 << 3) | (1 << 6))) return INVAL;
  pthread_mutex_lock(&lock);
  int done = both((object *)oh.cookie, dkey, nr, iods, sgls, 0);
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
int daos_obj_list_dkey(daos_handle_t oh, daos_handle_t th, uint32_t *nr, daos_key_desc_t *kds,
                       d_sg_list_t *sgl, daos_anchor_t *anchor, void *ev) {
  uint64_t skip = 0;
  uint32_t found = 0;
  uint8_t *into = sgl->sg_iovs->iov_buf;
  memcpy(&skip, anchor->da_buf, 8);
  pthread_mutex_lock(&lock);
  key *k = ((object *)oh.cookie)->keys;
  for (uint64_t i = 0; i < skip && k; i++) k = k->next;
  /* A page of three keys, so that the listing has several. */
  for (; k && found < 3 && found < *nr; k = k->next, skip++) {
    memcpy(into, k->name, k->size);
    into += k->size;
    kds[found++].kd_key_len = k->size;
  }
  memcpy(anchor->da_buf, &skip, 8);
  anchor->da_type = k ? 1 : 3;
  pthread_mutex_unlock(&lock);
  *nr = found;
  return 0;
}
