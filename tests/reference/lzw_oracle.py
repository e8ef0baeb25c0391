"""LZW written from its description (LSB first, 8-bit literals, 9 to 12 bits), slow: what the compiled one must agree with."""

CLEAR, END, LAST_CODE = 256, 257, 4095


class _Bits:
    """Codes packed from the least significant bit."""

    def __init__(self) -> None:
        self.whole, self.n_bits = 0, 0

    def put(self, code: int, width: int) -> None:
        self.whole |= code << self.n_bits
        self.n_bits += width


def compress(data: bytes) -> bytes:
    """Go's bytes: a clear code first, the longest known piece each time, a clear code when the table is full."""
    bits, table, hi, width = _Bits(), {}, END, 9
    bits.put(CLEAR, width)
    piece = b""

    def code_of(piece: bytes) -> int:
        return piece[0] if len(piece) == 1 else table[piece]

    for byte in data:
        longer = piece + bytes([byte])
        if len(longer) == 1 or longer in table:
            piece = longer
            continue
        bits.put(code_of(piece), width)
        hi += 1
        width += hi == 1 << width
        if hi == LAST_CODE:
            bits.put(CLEAR, width)
            table, hi, width = {}, END, 9
        else:
            table[longer] = hi
        piece = bytes([byte])
    if piece:
        bits.put(code_of(piece), width)
        hi += 1
        width += hi == 1 << width
        if hi == LAST_CODE:
            bits.put(CLEAR, width)
            width = 9
    bits.put(END, width)
    return bits.whole.to_bytes((bits.n_bits + 7) // 8, "little")


def decompress(data: bytes) -> bytes:
    """The bytes again.

    Raises:
        ValueError: no end code, or a code that stands for nothing.
    """
    whole, n_bits = int.from_bytes(data, "little"), 8 * len(data)
    table, out, width, last, position = {}, bytearray(), 9, None, 0
    hi = END
    while True:
        if position + width > n_bits:
            raise ValueError("no end code")
        code = whole >> position & (1 << width) - 1
        position += width
        if code == CLEAR:
            table, hi, width, last = {}, END, 9, None
            continue
        if code == END:
            return bytes(out)
        if code < CLEAR:
            piece = bytes([code])
        elif code in table:
            piece = table[code]
        elif code == hi and last is not None:
            piece = last + last[:1]
        else:
            raise ValueError("a code that stands for nothing")
        out += piece
        if last is not None:
            table[hi] = last + piece[:1]
        last = piece
        hi += 1
        if hi >= 1 << width:
            if width == 12:
                last, hi = None, hi - 1
            else:
                width += 1
