/* Threads that share the tasks of one caller, whose own thread takes part. pool_configure is called by one thread at a time. */
#ifndef FASTFRONT_POOL_H
#define FASTFRONT_POOL_H

/* Does task `index` of a run. */
typedef void (*pool_task)(void *argument, int index);

/* From now on runs use `threads` threads, the caller's included (at least 1), and an idle thread looks for the next run
   for `spins` rounds before it sleeps. Returns how many threads there are, fewer if the system gives no more. */
int pool_configure(int threads, int spins);

/* Run tasks 0..count-1, in any order and at the same time; returns when all are done. */
void pool_run(pool_task task, void *argument, int count);

int pool_threads(void);

#endif
