#!/bin/bash
# environment.sh DIR: in a mount namespace of its own, lets Ansible configure the tree it stands on.
# DIR holds env (TREE, BIND, ANSIBLE, PLAYBOOK, TAGS) and inventory.yml.
set -euo pipefail
DIR=$1
# shellcheck source=/dev/null
. "$DIR/env"
ROOT=$DIR/root
mount --make-rprivate /
mkdir -p "$DIR/files" "$DIR/work" "$ROOT"
mount -t overlay overlay -o "lowerdir=$TREE,upperdir=$DIR/files,workdir=$DIR/work" "$ROOT"
mount -t proc proc "$ROOT/proc"
mount --rbind /dev "$ROOT/dev"
mount -t tmpfs tmpfs "$ROOT/tmp"
for path in $BIND "$DIR/given"; do
    [ -e "$path" ] || continue
    if [ -d "$path" ]; then mkdir -p "$ROOT$path"; else touch "$ROOT$path"; fi
    mount --rbind "$path" "$ROOT$path"
done
inside() { chroot "$ROOT" env -C "$PLAYBOOK" PATH="$ANSIBLE:/usr/sbin:/usr/bin:/sbin:/bin" "$@"; }
inside apt-get update -qq
for _ in 1 2; do inside ansible-playbook -i "$DIR/given/inventory.yml" --tags "$TAGS" site.yml; done
inside /opt/hepcache/bin/python --version
inside /usr/local/bin/hepcache --version
inside /opt/hepcache/bin/jupyter labextension list 2>&1
inside /opt/hepcache/bin/pip list
