/* What a program says to callgrind about its own counting; outside of valgrind these do nothing. */
#include <valgrind/callgrind.h>

void counting_on(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void counting_off(const char *name) { CALLGRIND_DUMP_STATS_AT(name); CALLGRIND_STOP_INSTRUMENTATION; }
