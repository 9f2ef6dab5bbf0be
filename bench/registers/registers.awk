# Registers, spilled values and bytes of code of each kernel in LLVM's assembly for an AMD GPU.
/^\t\.size/ { name = $2; sub(/,.*/, "", name) }
/^; codeLenInByte/ { sizes[name] = $4 }
/^ +\.name:/ { name = $2 }
/\.vgpr_count:/ { count = $2 }
/\.vgpr_spill_count:/ { print name, count, "registers,", $2, "spilled,", sizes[name], "bytes" }
