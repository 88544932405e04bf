/* How much processor time control groups leave to this process. */
#ifndef SHD_LAUNCH_QUOTA_H
#define SHD_LAUNCH_QUOTA_H

/* Cores' worth of time, of the tightest limit on the way up; 0: there is none. Of both versions of control groups. `root` goes before
 * the paths of /proc and /sys ("" for this machine). */
double shd_quota_find(const char *root);

#endif
