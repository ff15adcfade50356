/* What is measured: utilisation from the record of who ran when, and plausible constants for the rest. */
#include <stdlib.h>

#include "../machine/schedule.h"
#include "library.h"

#define WINDOW_NS 1000000000ULL /* utilisation is over the last second */

static uint64_t start_of(uint64_t window, uint64_t now)
{
    return now > window ? now - window : 0;
}

static unsigned int percent(uint64_t part, uint64_t whole)
{
    uint64_t value = whole == 0 ? 0 : (part * 100 + whole / 2) / whole;
    return value > 100 ? 100 : (unsigned int)value;
}

SIM_API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, nvmlUtilization_t *out)
{
    SIM_NEED_CARD(handle, view);
    if (out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (view.card->mig_enabled)
        return NVML_ERROR_NOT_SUPPORTED;
    sim_unit_collect(view.unit);
    sim_schedule_advance(view.unit, view.card->concurrent);
    uint64_t now = sim_now();
    out->gpu = percent(sim_schedule_busy(view.unit, 0, start_of(WINDOW_NS, now), now), WINDOW_NS);
    out->memory = 0;
    return NVML_SUCCESS;
}

/* ---- processes ---- */

/* NVML's time stamps are microseconds of the wall clock; ours of the clock that the record uses, which is as good. */
static uint64_t stamp(uint64_t now)
{
    return now / 1000;
}

/* Fills what there is room for and counts all processes that ran in the window. */
static unsigned int sample(const struct sim_view *view, uint64_t from, uint64_t now, nvmlProcessUtilizationSample_t *out,
                           unsigned int room)
{
    unsigned int count = 0;
    uint32_t used = atomic_load(&view->unit->slots_used);
    for (uint32_t i = 0; i < used; i++) {
        int32_t pid = atomic_load(&view->unit->slots[i].pid);
        uint64_t busy = pid == 0 ? 0 : sim_schedule_busy(view->unit, pid, from, now);
        if (busy == 0)
            continue;
        if (count < room)
            out[count] = (nvmlProcessUtilizationSample_t){
                .pid = (unsigned int)pid, .timeStamp = stamp(now), .smUtil = percent(busy, now - from)};
        count++;
    }
    return count;
}

static nvmlReturn_t sampled(nvmlProcessUtilizationSample_t *out, unsigned int *count, unsigned int found)
{
    unsigned int room = out == NULL ? 0 : *count;
    *count = found;
    if (found == 0)
        return NVML_ERROR_NOT_FOUND;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t handle, nvmlProcessUtilizationSample_t *out,
                                                     unsigned int *count, unsigned long long last_seen)
{
    SIM_NEED_CARD(handle, view);
    if (count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (view.card->mig_enabled)
        return NVML_ERROR_NOT_SUPPORTED;
    sim_schedule_advance(view.unit, view.card->concurrent);
    uint64_t now = sim_now(), from = start_of(WINDOW_NS, now);
    if (last_seen > stamp(from) && last_seen < stamp(now))
        from = last_seen * 1000;
    return sampled(out, count, sample(&view, from, now, out, out == NULL ? 0 : *count));
}

/* ---- constants ---- */

/* GAUGE(name, value): one number of a whole card. */
#define GAUGE(name, value)                                                \
    SIM_API nvmlReturn_t name(nvmlDevice_t handle, unsigned int *out)     \
    {                                                                     \
        SIM_NEED_CARD(handle, view);                                      \
        if (out == NULL)                                                  \
            return NVML_ERROR_INVALID_ARGUMENT;                           \
        *out = (unsigned int)(value);                                     \
        return NVML_SUCCESS;                                              \
    }

GAUGE(nvmlDeviceGetPowerUsage, 75000)
GAUGE(nvmlDeviceGetPowerManagementLimit, 700000)
GAUGE(nvmlDeviceGetEnforcedPowerLimit, 700000)
GAUGE(nvmlDeviceGetPerformanceState, 0)
GAUGE(nvmlDeviceGetPersistenceMode, 1)
GAUGE(nvmlDeviceGetComputeMode, 0)
GAUGE(nvmlDeviceGetDisplayMode, 0)
GAUGE(nvmlDeviceGetDisplayActive, 0)
GAUGE(nvmlDeviceGetMemoryBusWidth, 6144)
GAUGE(nvmlDeviceGetNumGpuCores, 16896)
GAUGE(nvmlDeviceGetMaxPcieLinkGeneration, 5)
GAUGE(nvmlDeviceGetCurrPcieLinkGeneration, 5)
GAUGE(nvmlDeviceGetMaxPcieLinkWidth, 16)
GAUGE(nvmlDeviceGetCurrPcieLinkWidth, 16)

/* GAUGE_OF(name, bound, value): one number of several kinds; the kind is the second argument, below the bound. */
#define GAUGE_OF(name, bound, value)                                                 \
    SIM_API nvmlReturn_t name(nvmlDevice_t handle, unsigned int kind, unsigned int *out) \
    {                                                                                \
        SIM_NEED_CARD(handle, view);                                                 \
        if (out == NULL || kind >= (bound))                                          \
            return NVML_ERROR_INVALID_ARGUMENT;                                      \
        *out = (unsigned int)(value);                                                \
        return NVML_SUCCESS;                                                         \
    }

static unsigned int clock_of(unsigned int kind)
{
    static const unsigned int megahertz[] = {1980, 1980, 3201, 1545}; /* graphics, SM, memory, video */
    return megahertz[kind];
}

GAUGE_OF(nvmlDeviceGetTemperature, 1, view.card->temperature)
GAUGE_OF(nvmlDeviceGetTemperatureThreshold, 2, kind == 0 ? 95 : 92)
GAUGE_OF(nvmlDeviceGetClockInfo, 4, clock_of(kind))
GAUGE_OF(nvmlDeviceGetMaxClockInfo, 4, clock_of(kind))

SIM_API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t handle, unsigned int *current, unsigned int *pending)
{
    SIM_NEED_CARD(handle, view);
    if (current == NULL || pending == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *current = *pending = 1;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t handle, unsigned int type, unsigned int counter,
                                                 unsigned long long *count)
{
    SIM_NEED_CARD(handle, view);
    if (count == NULL || type > 1 || counter > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    return NVML_SUCCESS;
}
