"""What repeats exactly: facts that programs record, and instructions that are counted."""
