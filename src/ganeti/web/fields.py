"""Which fields of objects the REST interface shows: those that its clients know, in their order."""

_ALL_HAVE = ("ctime", "mtime", "uuid", "serial_no", "tags")

INSTANCE = (
    *("name", "admin_state", "os", "pnode", "snodes", "disk_template"),
    *("nic.ips", "nic.macs", "nic.modes", "nic.uuids", "nic.names", "nic.links", "nic.networks"),
    *("nic.networks.names", "nic.bridges", "network_port"),
    *("disk.sizes", "disk.spindles", "disk_usage", "disk.uuids", "disk.names"),
    *("beparams", "hvparams", "oper_state", "oper_ram", "oper_vcpus", "status"),
    *("custom_hvparams", "custom_beparams", "custom_nicparams"),
    *_ALL_HAVE,
)
NODE = (
    *("name", "offline", "master_candidate", "drained", "dtotal", "dfree", "sptotal", "spfree"),
    *("mtotal", "mnode", "mfree", "pinst_cnt", "sinst_cnt", "ctotal", "cnos", "cnodes", "csockets"),
    *("pip", "sip", "role", "pinst_list", "sinst_list", "master_capable", "vm_capable"),
    *("ndparams", "group.uuid"),
    *_ALL_HAVE,
)
GROUP = (
    *("alloc_policy", "name", "node_cnt", "node_list", "ipolicy", "custom_ipolicy"),
    *("diskparams", "custom_diskparams", "ndparams", "custom_ndparams"),
    *_ALL_HAVE,
)
NETWORK = (
    *("name", "network", "gateway", "network6", "gateway6", "mac_prefix"),
    *("free_count", "reserved_count", "map", "group_list", "inst_list", "external_reservations"),
    *_ALL_HAVE,
)
JOB_BULK = ("id", "ops", "status", "summary", "opstatus", "received_ts", "start_ts", "end_ts")
JOB = (*JOB_BULK, "oplog", "opresult")
FILTER = ("watermark", "priority", "predicates", "action", "reason_trail", "uuid")
