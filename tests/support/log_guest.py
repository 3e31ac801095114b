"""A guest of one sector, for nodes that are machines: it boots in seconds where a Linux guest would take minutes.

The sector is the boot sector of its disk. The program in it, for the BIOS, writes a numbered log: sector N of the disk
holds N. It reads what is on the disk and continues after that. The serial console shows a line of a letter and a number
in hexadecimal for each step: `F` the first entry that the disk lacks, `D` an entry whose write the disk has
acknowledged, `E` an entry that the disk did not accept.
"""

import re

SECTOR = 512
_PACKET = bytes.fromhex("1000 0100 0080 0000 00000000 00000000")
"""What the BIOS reads: how many sectors, memory 0000:8000, and the number of the first one, which the program fills in."""
_LISTING = """
fa                 7c00 cli
31c0               7c01 xor ax,ax
8ed8               7c03 mov ds,ax
8ec0               7c05 mov es,ax
8ed0               7c07 mov ss,ax
bc007c             7c09 mov sp,0x7c00
fb                 7c0c sti
8816007e           7c0d mov BYTE PTR ds:0x7e00,dl
66c706047e01000000 7c11 mov DWORD PTR ds:0x7e04,0x1
# read 64 sectors, and find the first one that does not hold its own number
c606d07c40         7c1a mov BYTE PTR ds:0x7cd0,0x40
b442               7c1f mov ah,0x42
e86100             7c21 call 0x7c85
7257               7c24 jb 0x7c7d
66a1047e           7c26 mov eax,ds:0x7e04
b94000             7c2a mov cx,0x40
be0080             7c2d mov si,0x8000
663904             7c30 cmp DWORD PTR [si],eax
750e               7c33 jne 0x7c43
6640               7c35 inc eax
81c60002           7c37 add si,0x200
e2f3               7c3b loop 0x7c30
66a3047e           7c3d mov ds:0x7e04,eax
ebd7               7c41 jmp 0x7c1a
66a3047e           7c43 mov ds:0x7e04,eax
c606d07c01         7c47 mov BYTE PTR ds:0x7cd0,0x1
# say F and that number
b046               7c4c mov al,0x46
e84a00             7c4e call 0x7c9b
# write
66a1047e           7c51 mov eax,ds:0x7e04
66a30080           7c55 mov ds:0x8000,eax
b443               7c59 mov ah,0x43
e82700             7c5b call 0x7c85
721d               7c5e jb 0x7c7d
# say D and the number
b044               7c60 mov al,0x44
e83600             7c62 call 0x7c9b
# wait for 18 ticks of 55 ms
668b1e6c04         7c65 mov ebx,DWORD PTR ds:0x46c
6683c312           7c6a add ebx,0x12
f4                 7c6e hlt
66391e6c04         7c6f cmp DWORD PTR ds:0x46c,ebx
72f8               7c74 jb 0x7c6e
# the next one
66ff06047e         7c76 inc DWORD PTR ds:0x7e04
ebd4               7c7b jmp 0x7c51
# say E and the number of the sector that failed
b045               7c7d mov al,0x45
e81900             7c7f call 0x7c9b
f4                 7c82 hlt
ebfd               7c83 jmp 0x7c82
# disk: the function in AH, for the sectors from the number on
668b0e047e         7c85 mov ecx,DWORD PTR ds:0x7e04
66890ed67c         7c8a mov DWORD PTR ds:0x7cd6,ecx
bece7c             7c8f mov si,0x7cce
8a16007e           7c92 mov dl,BYTE PTR ds:0x7e00
b000               7c96 mov al,0x0
cd13               7c98 int 0x13
c3                 7c9a ret
# say: a letter, the number in hexadecimal, the end of the line
e81f00             7c9b call 0x7cbd
668b1e047e         7c9e mov ebx,DWORD PTR ds:0x7e04
b90800             7ca3 mov cx,0x8
66c1c304           7ca6 rol ebx,0x4
88d8               7caa mov al,bl
240f               7cac and al,0xf
0430               7cae add al,0x30
3c39               7cb0 cmp al,0x39
7602               7cb2 jbe 0x7cb6
0407               7cb4 add al,0x7
e80400             7cb6 call 0x7cbd
e2eb               7cb9 loop 0x7ca6
b00a               7cbb mov al,0xa
# put: wait until the line takes a character
52                 7cbd push dx
50                 7cbe push ax
bafd03             7cbf mov dx,0x3fd
ec                 7cc2 in al,dx
a820               7cc3 test al,0x20
74fb               7cc5 je 0x7cc2
58                 7cc7 pop ax
baf803             7cc8 mov dx,0x3f8
ee                 7ccb out dx,al
5a                 7ccc pop dx
c3                 7ccd ret
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
