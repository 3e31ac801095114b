"""A small cluster as an htools data file: four nodes of two racks and switches, and one that is offline."""

from ganeti.whatif.source import Source
from ganeti.whatif.sources import file_source

TEXT = """\
default|uuid-of-default|preferred||

node1|16384|512|15360|102400|92160|8|M|uuid-of-default|1|rack:r1,switch:s1|N|0|1|1
node2|16384|512|14848|102400|97280|8|N|uuid-of-default|1|rack:r1,switch:s2|N|0|1|1
node3|16384|512|15872|102400|102400|8|N|uuid-of-default|1|rack:r2,switch:s1|N|0|1|1
node4|16384|512|15872|102400|102400|8|N|uuid-of-default|1|rack:r2,switch:s2|N|0|1|1
offline1|16384|512|15872|102400|102400|8|Y|uuid-of-default|1||N|0|1|1

web1|512|5120|1|running|Y|node1||plain||1
web2|1024|5248|1|running|Y|node2|node1|drbd|web|1
web3|512|1024|1|ADMIN_down|Y|node3||sharedfile||1
web4|512|1024|1|running|Y|node1||sharedfile||1

"""


def small_source() -> Source:
    return file_source(TEXT.encode())
