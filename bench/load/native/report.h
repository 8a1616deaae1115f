// The result of all workers as JSON.
#ifndef LOAD_REPORT_H
#define LOAD_REPORT_H

#include <stdio.h>

#include "worker.h"

// Seconds of CPU time of this process.
typedef struct {
    double user, system;
} cpu_time;

cpu_time cpu_now(void);
// One line of JSON. `elapsed_ns`: length of the measuring phase, `cpu`: spent in it. Adds up into the first worker.
void report_write(FILE *out, worker *workers, int count, uint64_t elapsed_ns, cpu_time cpu);

#endif
