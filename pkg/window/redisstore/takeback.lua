return string.rep('\0', 12)
