"""Take memory until something stops it."""

hoard = []
while True:
    hoard.append(bytearray(16 << 20))
