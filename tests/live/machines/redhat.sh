#!/bin/bash
# redhat.sh DIR: in a mount namespace of its own, lets Ansible configure a copy of this machine's
# tree that says it is AlmaLinux 9, with stand-ins for its packages in a repository of RPMs.
# DIR holds env (BIND, ANSIBLE, PLAYBOOK, TAGS), given/inventory.yml and given/packages.spec.
set -euo pipefail
DIR=$1
# shellcheck source=/dev/null
. "$DIR/env"
ROOT=$DIR/root
mount --make-rprivate /
mkdir -p "$DIR/upper" "$ROOT"
mount -t tmpfs tmpfs "$DIR/upper"
mkdir "$DIR/upper/files" "$DIR/upper/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$DIR/upper/files,workdir=$DIR/upper/work" "$ROOT"
mount -t proc proc "$ROOT/proc"
mount --rbind /dev "$ROOT/dev"
mount -t tmpfs tmpfs "$ROOT/tmp"
mount -t tmpfs tmpfs "$ROOT/run"
for path in $BIND "$DIR/given"; do
    mkdir -p "$ROOT$path"
    mount --rbind "$path" "$ROOT$path"
done
cd "$ROOT/etc"
rm -f os-release debian_version lsb-release apt/apt.conf.d/*
printf '%s\n' 'NAME="AlmaLinux"' 'ID="almalinux"' 'ID_LIKE="rhel centos fedora"' \
    'VERSION_ID="9.6"' 'VERSION="9.6 (Sage Margay)"' > os-release
echo 'AlmaLinux release 9.6 (Sage Margay)' | tee redhat-release almalinux-release > system-release
mkdir -p yum.repos.d
printf '%s\n' '[stand-ins]' 'name=stand-ins' 'baseurl=file:///tmp/rpms' 'gpgcheck=0' > yum.repos.d/test.repo
cd /
rm -f "$ROOT/usr/bin/apt-get" "$ROOT/usr/bin/apt"
mkdir -p "$ROOT/sys/module/cachefiles" # as if modprobe had loaded it
truncate -s 64M "$ROOT/ssd.img"
inside() { chroot "$ROOT" env -C "$PLAYBOOK" SYSTEMD_OFFLINE=1 PATH="$ANSIBLE:/usr/sbin:/usr/bin:/sbin:/bin" HOME=/root "$@"; }
inside rpmbuild --quiet -bb --define '_topdir /tmp/build' --define '_rpmdir /tmp/rpms' \
    "$DIR/given/packages.spec"
inside createrepo_c --quiet /tmp/rpms
for mode in --check "" ""; do
    # shellcheck disable=SC2086
    inside ansible-playbook -i "$DIR/given/inventory.yml" --tags "$TAGS" $mode site.yml
done
echo "=== rpm"; inside rpm -qa --qf '%{NAME}\n'
echo "=== labels"
inside matchpathcon -n /var/cache/fscache /ssd/fscache /ssd/fscache/cache/x /ssd /ssd/hepcache \
    /ssd/hepcache/alice/columns /usr/local/libexec/hepcache/hepcache-metrics
inside /usr/local/libexec/hepcache/hepcache-labels set # what is there already is no obstacle
echo "=== local"; inside semanage export
inside /usr/local/libexec/hepcache/hepcache-labels remove
echo "=== removed"; inside semanage fcontext -l -C
echo "=== firewall"; inside firewall-offline-cmd --check-config
inside firewall-offline-cmd --zone=hepcache --list-all
echo "=== cachefilesd"; inside cat /etc/cachefilesd.conf
echo "=== enabled"; inside sh -c 'ls /etc/systemd/system/*.wants'
