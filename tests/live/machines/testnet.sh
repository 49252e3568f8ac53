#!/bin/sh
# In a guest, at boot: the first card reaches the test, the second one the other guest.
set -eu
address=$(sed -n 's/.*testip=\([^ ]*\).*/\1/p' /proc/cmdline)
until [ -e /sys/class/net/eth0 ] && [ -e /sys/class/net/eth1 ]; do sleep 0.2; done
ip link set eth0 up
ip addr add 10.0.2.15/24 dev eth0
ip link set eth1 up
ip addr add "$address" dev eth1
