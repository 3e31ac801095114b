"""A guest of one sector, for nodes that are machines: it boots in seconds where a Linux guest would take minutes.

The sector is the boot sector of its disk. The program in it, for the BIOS, writes a numbered log: sector N of the disk
holds N. It continues after what is on the disk, and the serial console shows a line of a letter and a number in
hexadecimal for each step: `F` the first entry that the disk lacks, `D` an entry whose write the disk has acknowledged,
`E` an entry that the disk did not accept.
"""

import re

SECTOR = 512
_PACKET = bytes.fromhex("1000 0100 0080 0000 00000000 00000000")
"""What the BIOS reads: one sector, memory 0000:8000, and the number of the sector, which the program fills in."""
_LISTING = """
fa                 7c00 cli
31c0               7c01 xor ax,ax
8ed8               7c03 mov ds,ax
8ec0               7c05 mov es,ax
8ed0               7c07 mov ss,ax
bc007c             7c09 mov sp,0x7c00
fb                 7c0c sti
8816007e           7c0d mov BYTE PTR ds:0x7e00,dl
66c706047e00000000 7c11 mov DWORD PTR ds:0x7e04,0x0
# the first sector that does not hold its own number
66ff06047e         7c1a inc DWORD PTR ds:0x7e04
b442               7c1f mov ah,0x42
e84600             7c21 call 0x7c6a
723c               7c24 jb 0x7c62
66a10080           7c26 mov eax,ds:0x8000
663b06047e         7c2a cmp eax,DWORD PTR ds:0x7e04
74e9               7c2f je 0x7c1a
# say F and that number
b046               7c31 mov al,0x46
e84a00             7c33 call 0x7c80
# write
66a1047e           7c36 mov eax,ds:0x7e04
66a30080           7c3a mov ds:0x8000,eax
b443               7c3e mov ah,0x43
e82700             7c40 call 0x7c6a
721d               7c43 jb 0x7c62
# say D and the number
b044               7c45 mov al,0x44
e83600             7c47 call 0x7c80
# wait for 18 ticks of 55 ms
668b1e6c04         7c4a mov ebx,DWORD PTR ds:0x46c
6683c312           7c4f add ebx,0x12
f4                 7c53 hlt
66391e6c04         7c54 cmp DWORD PTR ds:0x46c,ebx
72f8               7c59 jb 0x7c53
# the next one
66ff06047e         7c5b inc DWORD PTR ds:0x7e04
ebd4               7c60 jmp 0x7c36
# say E and the number of the sector that failed
b045               7c62 mov al,0x45
e81900             7c64 call 0x7c80
f4                 7c67 hlt
ebf8               7c68 jmp 0x7c62
# disk: the function in AH, for the sector of the number
668b0e047e         7c6a mov ecx,DWORD PTR ds:0x7e04
66890ebb7c         7c6f mov DWORD PTR ds:0x7cbb,ecx
beb37c             7c74 mov si,0x7cb3
8a16007e           7c77 mov dl,BYTE PTR ds:0x7e00
b000               7c7b mov al,0x0
cd13               7c7d int 0x13
c3                 7c7f ret
# say: a letter, the number in hexadecimal, the end of the line
e81f00             7c80 call 0x7ca2
668b1e047e         7c83 mov ebx,DWORD PTR ds:0x7e04
b90800             7c88 mov cx,0x8
66c1c304           7c8b rol ebx,0x4
88d8               7c8f mov al,bl
240f               7c91 and al,0xf
0430               7c93 add al,0x30
3c39               7c95 cmp al,0x39
7602               7c97 jbe 0x7c9b
0407               7c99 add al,0x7
e80400             7c9b call 0x7ca2
e2eb               7c9e loop 0x7c8b
b00a               7ca0 mov al,0xa
# put: wait until the line takes a character
52                 7ca2 push dx
50                 7ca3 push ax
bafd03             7ca4 mov dx,0x3fd
ec                 7ca7 in al,dx
a820               7ca8 test al,0x20
74fb               7caa je 0x7ca7
58                 7cac pop ax
baf803             7cad mov dx,0x3f8
ee                 7cb0 out dx,al
5a                 7cb1 pop dx
c3                 7cb2 ret
"""
"""The bytes of each instruction, its address, and the instruction, as `objdump -M intel` shows it."""
_LINE = re.compile(r"([FDE])([0-9A-F]{8})")


def boot_sector() -> bytes:
    """Return the first sector of the disk."""
    lines = [line.split() for line in _LISTING.strip().splitlines() if line[:1] != "#"]
    code = bytes.fromhex("".join(words[0] for words in lines)) + _PACKET
    return code.ljust(SECTOR - 2, b"\0") + b"\x55\xaa"


def step_of(line: str) -> tuple[str, int] | None:
    """Return the letter and the number of a line of the console; None for any other line."""
    found = _LINE.fullmatch(line.strip())
    return (found[1], int(found[2], 16)) if found else None
