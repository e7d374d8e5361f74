"""Where bytes are kept: local disks and object stores, each behind a small seam."""
