/* The record of who ran when. */
#include "record.h"

#include <stddef.h>

static struct sim_record *at(struct sim_log *log, uint64_t number)
{
    return &log->entries[number % SIM_RECORDS];
}

const struct sim_record *sim_record_at(const struct sim_log *log, uint64_t number)
{
    return &log->entries[number % SIM_RECORDS];
}

uint64_t sim_record_known(const struct sim_log *log)
{
    return log->count < SIM_RECORDS ? log->count : SIM_RECORDS;
}

static struct sim_record *latest_run(struct sim_log *log)
{
    return log->latest == 0 || log->count - log->latest >= SIM_RECORDS ? NULL : at(log, log->latest - 1);
}

void sim_record_add(struct sim_log *log, struct sim_record entry)
{
    struct sim_record *run = latest_run(log);
    if (entry.kind == SIM_RAN && run != NULL && run->pid == entry.pid && run->end == entry.start) {
        run->end = entry.end;
        return;
    }
    struct sim_record *place = at(log, log->count);
    if (log->count >= SIM_RECORDS && place->end > log->lost)
        log->lost = place->end;
    *place = entry;
    log->count++;
    if (entry.kind == SIM_RAN)
        log->latest = log->count;
}
