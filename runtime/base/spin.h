/* One turn of a loop that waits awake. */
#ifndef SHD_BASE_SPIN_H
#define SHD_BASE_SPIN_H

/* Tells the processor, which then leaves more to the other thread of its core; the scheduler is not asked. */
static inline void shd_spin_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
