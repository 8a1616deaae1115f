/* Waiting without sleeping. */
#ifndef FASTFRONT_SPIN_H
#define FASTFRONT_SPIN_H

/* Tells the processor that this thread looks at memory in a loop. */
static inline void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
