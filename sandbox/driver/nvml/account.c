/* What NVML keeps of processes: utilisation by process in its newer form, accounting, and fields by number. */
#include <string.h>

#include "../machine/schedule.h"
#include "library.h"
#include "sample.h"

/* ---- utilisation ---- */

struct process_info {
    unsigned long long time;
    unsigned int pid, sm, memory, encoder, decoder, jpeg, optical_flow;
};

struct process_list {
    unsigned int version, count;
    unsigned long long last_seen;
    struct process_info *list;
};

SIM_API nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t handle, struct process_list *out)
{
    nvmlProcessUtilizationSample_t samples[SIM_SLOTS];
    unsigned int found = SIM_SLOTS;
    nvmlReturn_t result = sim_nvml_need();
    if (result != NVML_SUCCESS || out == NULL)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    if (out->version != NVML_VERSION(struct process_list, 1U))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    result = nvmlDeviceGetProcessUtilization(handle, samples, &found, out->last_seen);
    if (result != NVML_SUCCESS)
        return result;
    unsigned int room = out->list == NULL ? 0 : out->count;
    for (unsigned int i = 0; i < found && i < room; i++)
        out->list[i] = (struct process_info){.time = samples[i].timeStamp, .pid = samples[i].pid, .sm = samples[i].smUtil};
    out->count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* ---- accounting: of living processes only, once it is switched on ---- */

struct stats {
    unsigned int gpu, memory;
    unsigned long long most_memory, time, start;
    unsigned int running, reserved[5];
};

SIM_API nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t handle, unsigned int *mode)
{
    SIM_NEED_CARD(handle, view);
    if (mode == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *mode = atomic_load(&view.unit->accounting);
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceSetAccountingMode(nvmlDevice_t handle, unsigned int mode)
{
    SIM_NEED_CARD(handle, view);
    if (mode > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    atomic_store(&view.unit->accounting, mode);
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t handle, unsigned int *size)
{
    SIM_NEED_CARD(handle, view);
    if (size == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *size = SIM_SLOTS;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t handle, unsigned int *count, unsigned int *pids)
{
    SIM_NEED_CARD(handle, view);
    if (count == NULL || (*count > 0 && pids == NULL))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (atomic_load(&view.unit->accounting) == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    sim_unit_collect(view.unit);
    unsigned int found = 0, room = *count;
    for (int i = 0; i < SIM_SLOTS; i++) {
        int32_t pid = atomic_load(&view.unit->slots[i].pid);
        if (pid == 0)
            continue;
        if (found < room)
            pids[found] = (unsigned int)pid;
        found++;
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t handle, unsigned int pid, struct stats *out)
{
    SIM_NEED_CARD(handle, view);
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (atomic_load(&view.unit->accounting) == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    sim_unit_collect(view.unit);
    for (int i = 0; i < SIM_SLOTS; i++) {
        const struct sim_slot *slot = &view.unit->slots[i];
        if (pid == 0 || (unsigned int)atomic_load(&slot->pid) != pid)
            continue;
        *out = (struct stats){.most_memory = atomic_load(&slot->memory), .running = 1};
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}

/* ---- fields by number ---- */

struct field {
    unsigned int id, scope;
    long long time, latency;
    int type;
    nvmlReturn_t result;
    union {
        unsigned int number;
        unsigned long long wide;
    } value;
};

enum { MEMORY_TEMPERATURE = 82, UNSIGNED_INT = 1 };

SIM_API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t handle, int count, struct field *fields)
{
    SIM_NEED_CARD(handle, view);
    if (count < 1 || fields == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < count; i++) {
        bool known = fields[i].id == MEMORY_TEMPERATURE;
        fields[i].time = (long long)(sim_now() / 1000);
        fields[i].result = known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
        fields[i].type = UNSIGNED_INT;
        fields[i].value.number = known ? (unsigned int)view.card->temperature : 0;
    }
    return NVML_SUCCESS;
}
