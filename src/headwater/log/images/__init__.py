"""Images: the whole state at one position, in files or in an object store; recovery begins with the newest good one."""
