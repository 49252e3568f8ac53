#!/bin/bash
# host-init.sh DIR: first process of a host, already in namespaces of its own.
# DIR holds env (NAME, IP, BASE, BIND), config.d/ and hosts; DIR/root becomes the host's root.
set -euo pipefail
DIR=$1
# shellcheck source=/dev/null
. "$DIR/env"
ROOT=$DIR/root
hostname "$NAME"
mount --make-rprivate /
mount -t tmpfs tmpfs "$DIR/upper"
mkdir -p "$DIR/upper/files" "$DIR/upper/work" "$ROOT"
mount -t overlay overlay -o "lowerdir=$BASE,upperdir=$DIR/upper/files,workdir=$DIR/upper/work" "$ROOT"
mount -t proc proc "$ROOT/proc"
mount -t sysfs -o ro sysfs "$ROOT/sys"
mount --rbind /dev "$ROOT/dev"
mount -t tmpfs -o mode=1777 tmpfs "$ROOT/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$ROOT/run"
mount -t tmpfs -o mode=1777 tmpfs "$ROOT/tmp"
mkdir -p "$ROOT/run/lock" "$ROOT/ssd"
mount -t tmpfs -o mode=1777,size=1g hepcache-ssd "$ROOT/ssd"
chmod 755 "$ROOT/root"
for path in $BIND; do # at the same place, or PATH=PLACE
    mkdir -p "$ROOT${path#*=}"
    mount --rbind "${path%%=*}" "$ROOT${path#*=}"
done
mount --bind "$DIR/../home" "$ROOT/home"
cp "$DIR/../hosts" "$ROOT/etc/hosts"
cp "$DIR"/config.d/* "$ROOT/etc/condor/config.d/"
install -d "$ROOT/usr/local/libexec/hepcache"
cp "$DIR"/../bin/* "$ROOT/usr/local/libexec/hepcache/"
install -d -m 700 "$ROOT/etc/condor/passwords.d"
install -m 600 "$DIR/../pool-key" "$ROOT/etc/condor/passwords.d/POOL"
until ip link show eth0 > /dev/null 2>&1; do read -rt 0.05 <> <(:) || :; done
ip link set lo up
ip addr add "$IP/24" dev eth0
ip link set eth0 up
ip route add default via "${IP%.*}.1"
chroot "$ROOT" install -d -o condor -g condor \
    /run/condor /run/lock/condor /var/spool/condor /var/lib/condor/execute /var/log/condor
touch "$DIR/ready"
exec chroot "$ROOT" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 bash -c '
  condor_master -f & master=$!
  trap "kill -QUIT $master" TERM
  while kill -0 $master 2> /dev/null; do wait $master || :; done'
