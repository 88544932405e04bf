/* Preloaded into a program: no file can be locked, and no folder synced, as on some file systems. */
#include <dlfcn.h>
#include <errno.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

int flock(int file, int operation) {
    (void)file;
    errno = operation & LOCK_UN ? 0 : ENOLCK;
    return operation & LOCK_UN ? 0 : -1;
}

int fsync(int file) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    struct stat about;
    if (fstat(file, &about) != 0 || !S_ISDIR(about.st_mode)) return next(file);
    errno = EINVAL;
    return -1;
}
