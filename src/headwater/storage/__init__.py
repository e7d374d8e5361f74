"""Local disks and object stores, each behind a small seam."""
