/* pool_probe THREADS SECONDS: runs of changing length, task and argument on the pool; fails unless each task is done exactly once. */
#include "pool.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 64, JOBS = 64, LIVE = 0x1234 };

struct job {
    int live;
    int count;
    _Atomic int done[MOST];
};

static _Atomic long wrong;

static void one(void *argument, int index)
{
    struct job *job = argument;
    if (job->live != LIVE || index >= job->count)
        atomic_fetch_add(&wrong, 1);
    else
        atomic_fetch_add(&job->done[index], 1);
}

static void other(void *argument, int index)
{
    one(argument, index);
}

int main(int count, char **words)
{
    static struct job jobs[JOBS];
    if (count != 3)
        return 2;
    pool_configure(atoi(words[1]), 500);
    time_t end = time(NULL) + atoi(words[2]);
    unsigned random = 1;
    long runs = 0;
    while (time(NULL) < end) {
        struct job *job = &jobs[runs++ % JOBS];
        random = random * 1664525u + 1013904223u;
        memset(job, 0, sizeof(*job));
        job->count = 2 + (int)((random >> 20) % (MOST - 2));
        job->live = LIVE;
        pool_run((random & 4096u) != 0 ? one : other, job, job->count);
        for (int index = 0; index < job->count; index++)
            if (atomic_load(&job->done[index]) != 1)
                atomic_fetch_add(&wrong, 1);
        job->live = 0;
    }
    printf("%ld runs, %ld wrong\n", runs, atomic_load(&wrong));
    return atomic_load(&wrong) != 0;
}
