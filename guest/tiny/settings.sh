# Read by the scripts of this OS definition: what they share.

MIN_MIB=40

fail() {
  echo "tiny: $*" >&2
  exit 1
}

# Sets heartbeat_interval and ignore_acpi from the OS parameters, or fails saying what is wrong.
read_parameters() {
  heartbeat_interval=${OSP_HEARTBEAT_INTERVAL:-0.2}
  ignore_acpi=${OSP_IGNORE_ACPI:-no}
  echo "$heartbeat_interval" | awk '
    /^[0-9]+(\.[0-9]+)?$/ && $0 >= 0.05 && $0 <= 60 { ok = 1 }
    END { exit !ok || NR != 1 }' \
    || fail "heartbeat_interval must be a number of seconds from 0.05 to 60, not '$heartbeat_interval'"
  case $ignore_acpi in
    yes | no) ;;
    *) fail "ignore_acpi must be yes or no, not '$ignore_acpi'" ;;
  esac
}

# Sets host_name from the instance's name.
read_host_name() {
  host_name=${INSTANCE_NAME:?}
  case $host_name in
    *[!a-zA-Z0-9.-]*) fail "the instance's name '$host_name' is no host name" ;;
  esac
}

# Sets disk to the instance's first disk, big enough.
read_disk() {
  disk=${DISK_0_PATH:-}
  [ -n "$disk" ] || fail "the instance has no disk; tiny is installed onto the first one"
  [ -e "$disk" ] || fail "the first disk, $disk, does not exist"
  size=$(if [ -b "$disk" ]; then blockdev --getsize64 "$disk"; else stat -L -c %s "$disk"; fi)
  [ "$size" -ge $((MIN_MIB * 1024 * 1024)) ] \
    || fail "the first disk has $((size / 1024 / 1024)) MiB; tiny needs at least $MIN_MIB"
}

# The first 4 KiB of the disk: what the installed system reads when it starts.
write_settings() {
  printf 'GANETI-TINY 1\nhostname=%s\nsystem_kib=%s\nheartbeat_interval=%s\nignore_acpi=%s\n' \
    "$host_name" "$system_kib" "$heartbeat_interval" "$ignore_acpi" \
    | dd of="$disk" bs=4096 count=1 conv=notrunc,sync,fsync iflag=fullblock status=none
}
