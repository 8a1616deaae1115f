#define _GNU_SOURCE
#include "pool.h"
#include "spin.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST_THREADS = 256 };
static const uint64_t NO_TASK = UINT32_MAX;

/* A ticket is (number of the run << 32 | next task): taking one by compare-and-swap proves that the run it was read for is
   still the current one, so that the fields below belong to it. For that the ticket of a run that is over must be gone before
   the fields of the next one are written: else a thread that read it before, with the next run's larger count, would take it. */
static _Atomic uint64_t ticket;
static _Atomic(pool_task) run_task;
static _Atomic(void *) run_argument;
static _Atomic int run_count;
static _Atomic int done;
/* Futex words: the run's number for idle threads, and the caller's while it waits for the last task. */
static _Atomic uint32_t number;
static _Atomic int sleepers;
static _Atomic int caller_sleeps;
static _Atomic int limit = 1;
static _Atomic int rounds = 1000;
static int started = 1;
static atomic_flag taken = ATOMIC_FLAG_INIT;

static void sleep_while(void *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(void *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static void take_tasks(uint32_t run)
{
    for (;;) {
        uint64_t mine = atomic_load(&ticket);
        pool_task task = atomic_load_explicit(&run_task, memory_order_relaxed);
        void *argument = atomic_load_explicit(&run_argument, memory_order_relaxed);
        int count = atomic_load_explicit(&run_count, memory_order_relaxed);
        /* Who has seen fields of a later run sees that the ticket is gone, too. */
        atomic_thread_fence(memory_order_acquire);
        if ((uint32_t)(mine >> 32) != run || (uint32_t)mine >= (uint32_t)count)
            return;
        if (!atomic_compare_exchange_weak(&ticket, &mine, mine + 1))
            continue;
        task(argument, (int)(uint32_t)mine);
        if (atomic_fetch_add(&done, 1) + 1 == count && atomic_load(&caller_sleeps))
            wake(&done, 1);
    }
}

static void *serve(void *argument)
{
    int place = (int)(intptr_t)argument;
    uint32_t seen = 0;
    for (;;) {
        uint32_t now = atomic_load(&number);
        for (int left = atomic_load(&rounds); now == seen && left > 0; left--) {
            pause_briefly();
            now = atomic_load(&number);
        }
        if (now == seen) {
            atomic_fetch_add(&sleepers, 1);
            sleep_while(&number, seen);
            atomic_fetch_sub(&sleepers, 1);
            continue;
        }
        seen = now;
        if (place < atomic_load(&limit))
            take_tasks(now);
    }
    return NULL;
}

int pool_configure(int threads, int spins)
{
    if (threads < 1)
        threads = 1;
    if (threads > MOST_THREADS)
        threads = MOST_THREADS;
    atomic_store(&rounds, spins);
    /* The process's signals are for its other threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < threads) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)started) != 0)
            break;
        pthread_detach(thread);
        started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    atomic_store(&limit, threads < started ? threads : started);
    return atomic_load(&limit);
}

int pool_threads(void)
{
    return atomic_load(&limit);
}

void pool_run(pool_task task, void *argument, int count)
{
    /* A second caller at the same time does its work alone. */
    if (count <= 1 || atomic_load(&limit) == 1 || atomic_flag_test_and_set(&taken)) {
        for (int index = 0; index < count; index++)
            task(argument, index);
        return;
    }
    uint32_t run = atomic_load(&number) + 1;
    atomic_store(&ticket, (uint64_t)run << 32 | NO_TASK);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&done, 0, memory_order_relaxed);
    atomic_store_explicit(&run_task, task, memory_order_relaxed);
    atomic_store_explicit(&run_argument, argument, memory_order_relaxed);
    atomic_store_explicit(&run_count, count, memory_order_relaxed);
    atomic_store(&ticket, (uint64_t)run << 32);
    atomic_store(&number, run);
    if (atomic_load(&sleepers) > 0)
        wake(&number, atomic_load(&limit) - 1);
    take_tasks(run);
    for (int left = atomic_load(&rounds); atomic_load(&done) < count; left--) {
        if (left > 0) {
            pause_briefly();
            continue;
        }
        atomic_store(&caller_sleeps, 1);
        int so_far = atomic_load(&done);
        if (so_far < count)
            sleep_while(&done, (uint32_t)so_far);
        atomic_store(&caller_sleeps, 0);
    }
    atomic_flag_clear(&taken);
}
