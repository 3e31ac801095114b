# A cluster of Debian's Ganeti with the fake hypervisor, in a mount and a network namespace: ROOT DIRECTORY NODES SPARE.
# SPARE more hosts have addresses, and nothing else. ROOT has the unpacked packages; below DIRECTORY everything is kept.
set -eu
root=$1 top=$2 nodes=$3 spare=$4 here=$(cd "$(dirname "$0")" && pwd)
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t tmpfs tmpfs "$top"
chmod 755 "$top"
mkdir "$top/etc" "$top/work" "$top/files"
mount -t overlay overlay -o "lowerdir=$root/usr:/usr" /usr
mount -t overlay overlay -o "lowerdir=$root/lib:/usr/lib" /usr/lib
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$top/etc,workdir=$top/work" /etc
mount -t tmpfs tmpfs /srv
# Definitions of OSes that other tests have unpacked beside it.
[ ! -d /usr/share/ganeti/os ] || mount -t tmpfs tmpfs /usr/share/ganeti/os
mkdir -p /etc/ganeti /etc/default
for part in lib share; do ln -sfn "/usr/$part/ganeti/3.0" "/etc/ganeti/$part"; done
ip link set lo up

users="gnt-masterd gnt-confd gnt-rapi gnt-luxid gnt-wconfd gnt-metad"
for one in $users gnt-daemons gnt-admin; do getent group "$one" >/dev/null || groupadd -r "$one"; done
for one in $users; do
  getent passwd "$one" >/dev/null || useradd -r -g "$one" -d /var/lib/ganeti -s /usr/sbin/nologin "$one"
  usermod -aG gnt-masterd,gnt-confd,gnt-daemons,gnt-admin,gnt-luxid,gnt-wconfd "$one"
done
ls /etc/ssh/ssh_host_*_key.pub >/dev/null 2>&1 || ssh-keygen -A >/dev/null

os=/srv/ganeti/os/noop
mkdir -p "$os"
for one in create import export rename verify; do
  printf '#!/bin/sh\nexit 0\n' >"$os/$one"
  chmod 755 "$os/$one"
done
echo 20 >"$os/ganeti_api_version"
echo default >"$os/variants.list"
: >"$os/parameters.list"

echo "198.51.100.1 cluster.peer" >>/etc/hosts
for number in $(seq $((nodes + spare))); do
  echo "198.51.100.1$number peernode$number" >>/etc/hosts
  ip addr add "198.51.100.1$number/32" dev lo
done
ip route replace unreachable 198.51.100.0/24 # the cluster's address must not answer

on_node() {
  local number=$1
  shift
  env GANETI_ROOTDIR="$top/peernode$number" GANETI_HOSTNAME="peernode$number" "$@"
}
for number in $(seq "$nodes"); do
  node=$top/peernode$number
  mkdir -p "$node"/etc/default "$node"/etc/ganeti "$node"/var/lock "$node"/var/lib/ganeti "$node"/var/log/ganeti "$node"/var/run/ganeti
  on_node "$number" /usr/lib/ganeti/ensure-dirs
  at="-b 198.51.100.1$number"
  cat >"$node/etc/default/ganeti" <<EOF
NODED_ARGS='--no-mlock $at'
RAPI_ARGS='$at --require-authentication'
CONFD_ARGS='$at'
MOND_ARGS='$at'
METAD_ARGS='$at'
WCONFD_ARGS=''
LUXID_ARGS=''
KVMD_ARGS=''
export GANETI_ROOTDIR='$node'
export GANETI_HOSTNAME='peernode$number'
EOF
  echo "$top/files" >"$node/etc/ganeti/file-storage-paths"
  # This version looks for the directory below the root of its virtual node.
  mkdir -p "$node$top/files"
  mount --bind "$top/files" "$node$top/files"
done

bounds=min:disk-size=0,cpu-count=1,disk-count=0,memory-size=1,nic-count=0,spindle-use=0
bounds=$bounds/max:disk-size=1048576,cpu-count=8,disk-count=16,memory-size=32768,nic-count=8,spindle-use=12
on_node 1 gnt-cluster init --no-etc-hosts --no-ssh-init --master-netdev=lo \
  --enabled-hypervisors=fake --enabled-disk-templates=diskless,file --nic-parameters=mode=routed,link=lo \
  --ipolicy-disk-templates=diskless,file --ipolicy-bounds-specs="$bounds" --file-storage-dir="$top/files" cluster.peer
for number in $(seq 2 "$nodes"); do
  on_node 1 /usr/bin/python3 -W ignore "$here/debian_cluster_node.py" "peernode$number"
done
echo "the cluster is up"
