/* Who reads or writes a checkpoint holds its folder, by a shared lock that the kernel drops with the process: it keeps
 * its name until it is let go, and is removed only after that. Where flock does not work, nothing is held. */
#ifndef SHD_IO_CHECKPOINT_HOLD_H
#define SHD_IO_CHECKPOINT_HOLD_H

/* Holds the folder that is at `path` until shd_file_close. One that is being removed is waited for, and is then no more
 * there. -1 with errno: it cannot be opened; ENOENT: there is none. */
int shd_folder_hold(const char *path);

#endif
