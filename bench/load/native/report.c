#include "report.h"

#include <sys/resource.h>

cpu_time cpu_now(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (cpu_time){
        (double)used.ru_utime.tv_sec + (double)used.ru_utime.tv_usec / 1e6,
        (double)used.ru_stime.tv_sec + (double)used.ru_stime.tv_usec / 1e6,
    };
}

static void merge(figures *into, const figures *from)
{
#define ADD(field) into->field += from->field
#define LARGER(field) into->field = from->field > into->field ? from->field : into->field
    ADD(tokens), ADD(events), ADD(token_events), ADD(reads), ADD(bytes), ADD(ok_in_phase);
    ADD(started), ADD(ok), ADD(failed), ADD(disconnected), ADD(unfinished), ADD(slow), ADD(shorter);
    ADD(reconnects), ADD(backlog_max), ADD(answers_by_ids), ADD(answers_by_usage), ADD(answers_by_events);
    ADD(prompt_tokens), ADD(prompts);
    LARGER(clump_max), LARGER(ended_at);
    for (int i = 0; i < FAIL_KINDS; i++)
        ADD(failures[i]);
    for (int i = 0; i < 600; i++)
        ADD(statuses[i]);
    for (int i = 0; i <= CLUMPS; i++)
        ADD(clumps[i]);
    for (int i = 0; i < SECONDS; i++)
        ADD(by_second[i]);
    if (!into->sample[0])
        __builtin_memcpy(into->sample, from->sample, sizeof into->sample);
    histogram_merge(&into->connect, &from->connect);
    histogram_merge(&into->lag, &from->lag);
    histogram_merge(&into->first_event, &from->first_event);
    histogram_merge(&into->ttft, &from->ttft);
    histogram_merge(&into->itl, &from->itl);
    histogram_merge(&into->tpot, &from->tpot);
    histogram_merge(&into->e2e, &from->e2e);
#undef ADD
#undef LARGER
}

static void write_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f) // bytes of a cut or foreign text may be anything
            fprintf(out, "\\u%04x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

// Milliseconds.
static void write_latency(FILE *out, const char *name, const histogram *h)
{
    fprintf(out, ", \"%s\": {\"count\": %llu", name, (unsigned long long)h->count);
    if (h->count)
        fprintf(out, ", \"mean\": %.4f, \"p50\": %.4f, \"p90\": %.4f, \"p99\": %.4f, \"p999\": %.4f, \"max\": %.4f",
                h->sum / (double)h->count / 1e6, histogram_quantile(h, 0.5) / 1e6, histogram_quantile(h, 0.9) / 1e6,
                histogram_quantile(h, 0.99) / 1e6, histogram_quantile(h, 0.999) / 1e6, (double)h->max / 1e6);
    fputc('}', out);
}

static void write_count(FILE *out, const char *name, uint64_t value)
{
    fprintf(out, ", \"%s\": %llu", name, (unsigned long long)value);
}

static void write_failures(FILE *out, const figures *f)
{
    const char *comma = "";
    fprintf(out, ", \"failures\": {");
    for (int i = 0; i < FAIL_STATUS; i++)
        if (f->failures[i]) {
            fprintf(out, "%s\"%s\": %llu", comma, FAILURE_NAMES[i], (unsigned long long)f->failures[i]);
            comma = ", ";
        }
    for (int i = 0; i < 600; i++)
        if (f->statuses[i]) {
            fprintf(out, "%s\"http_%d\": %llu", comma, i, (unsigned long long)f->statuses[i]);
            comma = ", ";
        }
    fprintf(out, "}, \"first_failure\": ");
    write_text(out, f->sample);
}

void report_write(FILE *out, worker *workers, int count, uint64_t elapsed_ns, cpu_time cpu)
{
    figures *f = &workers[0].figures;
    for (int i = 1; i < count; i++)
        merge(f, &workers[i].figures);
    fprintf(out, "{\"elapsed_s\": %.6f, \"cpu_user_s\": %.6f, \"cpu_system_s\": %.6f", (double)elapsed_ns / 1e9, cpu.user, cpu.system);
    write_count(out, "started", f->started);
    write_count(out, "ok", f->ok);
    write_count(out, "failed", f->failed);
    write_count(out, "disconnected", f->disconnected);
    write_count(out, "unfinished", f->unfinished);
    write_count(out, "slow", f->slow);
    write_count(out, "short", f->shorter);
    write_count(out, "completed", f->ok_in_phase);
    write_count(out, "tokens", f->tokens);
    write_count(out, "events", f->events);
    write_count(out, "token_events", f->token_events);
    write_count(out, "reads", f->reads);
    write_count(out, "bytes", f->bytes);
    write_count(out, "reconnects", f->reconnects);
    write_count(out, "backlog_max", f->backlog_max);
    write_count(out, "by_ids", f->answers_by_ids);
    write_count(out, "by_usage", f->answers_by_usage);
    write_count(out, "by_events", f->answers_by_events);
    write_count(out, "prompt_tokens", f->prompt_tokens);
    write_count(out, "prompts", f->prompts);
    write_count(out, "clump_max", f->clump_max);
    write_failures(out, f);
    fprintf(out, ", \"clumps\": {");
    const char *comma = "";
    for (int i = 1; i <= CLUMPS; i++)
        if (f->clumps[i]) {
            fprintf(out, "%s\"%d\": %llu", comma, i, (unsigned long long)f->clumps[i]);
            comma = ", ";
        }
    fprintf(out, "}, \"by_second\": [");
    int last = SECONDS - 1;
    while (last >= 0 && !f->by_second[last])
        last--;
    for (int i = 0; i <= last; i++)
        fprintf(out, "%s%llu", i ? ", " : "", (unsigned long long)f->by_second[i]);
    fputc(']', out);
    write_latency(out, "connect_ms", &f->connect);
    write_latency(out, "lag_ms", &f->lag);
    write_latency(out, "first_event_ms", &f->first_event);
    write_latency(out, "ttft_ms", &f->ttft);
    write_latency(out, "itl_ms", &f->itl);
    write_latency(out, "tpot_ms", &f->tpot);
    write_latency(out, "e2e_ms", &f->e2e);
    fprintf(out, "}\n");
    fflush(out);
}
