/* Events: XID and uncorrected ECC errors, as the scenario reports them while programs run. */
#include <stdlib.h>
#include <time.h>

#include "library.h"

/* What a set has been told so far, by card. */
struct nvmlEventSet_st {
    unsigned long long types[SIM_MAX_CARDS];
    int seen[SIM_MAX_CARDS]; /* XIDs delivered, or there before registering */
    int seen_ecc[SIM_MAX_CARDS];
};

SIM_API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    nvmlReturn_t result = sim_nvml_need();
    if (result != NVML_SUCCESS || set == NULL)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    *set = calloc(1, sizeof **set);
    return *set == NULL ? NVML_ERROR_MEMORY : NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    nvmlReturn_t result = sim_nvml_need();
    if (result != NVML_SUCCESS || set == NULL)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    free(set);
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t handle, unsigned long long *types)
{
    enum { SINGLE_BIT_ECC = 1 };
    SIM_NEED_CARD(handle, view);
    if (types == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *types = SINGLE_BIT_ECC | NVML_EVENT_DOUBLE_BIT_ECC | NVML_EVENT_XID;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t handle, unsigned long long types, nvmlEventSet_t set)
{
    SIM_NEED_CARD(handle, view);
    if (set == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    set->types[view.card_index] |= types;
    set->seen[view.card_index] = view.card->xid_count;
    set->seen_ecc[view.card_index] = view.card->ecc_errors;
    return NVML_SUCCESS;
}

/* What a set is told. */
static nvmlEventData_t event_of(int card, unsigned long long type, unsigned long long data)
{
    return (nvmlEventData_t){
        .device = sim_nvml_handle(card, -1),
        .eventType = type,
        .eventData = data,
        .gpuInstanceId = NVML_NO_INSTANCE,
        .computeInstanceId = NVML_NO_INSTANCE,
    };
}

/* The next error that the set has not been told. */
static bool next_event(nvmlEventSet_t set, nvmlEventData_t *out)
{
    const struct sim_scenario *scenario = &sim_nvml_machine()->scenario;
    for (int i = 0; i < scenario->card_count; i++) {
        const struct sim_card *card = &scenario->cards[i];
        if ((set->types[i] & NVML_EVENT_XID) != 0 && set->seen[i] < card->xid_count) {
            *out = event_of(i, NVML_EVENT_XID, (unsigned long long)card->xids[set->seen[i]++]);
            return true;
        }
        if ((set->types[i] & NVML_EVENT_DOUBLE_BIT_ECC) != 0 && set->seen_ecc[i] < card->ecc_errors) {
            set->seen_ecc[i]++;
            *out = event_of(i, NVML_EVENT_DOUBLE_BIT_ECC, 0);
            return true;
        }
    }
    return false;
}

/* Looks at the scenario a hundred times a second until something happens or the time (milliseconds) is over. */
SIM_API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *out, unsigned int timeout)
{
    const struct timespec pause = {0, 10000000};
    nvmlReturn_t ready = sim_nvml_need();
    if (ready != NVML_SUCCESS || set == NULL || out == NULL)
        return ready != NVML_SUCCESS ? ready : NVML_ERROR_INVALID_ARGUMENT;
    uint64_t end = sim_now() + timeout * 1000000ULL;
    for (;;) {
        nvmlReturn_t result = sim_nvml_need();
        if (result != NVML_SUCCESS)
            return result;
        if (next_event(set, out))
            return NVML_SUCCESS;
        if (sim_now() >= end)
            return NVML_ERROR_TIMEOUT;
        nanosleep(&pause, NULL);
    }
}

SIM_API nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *out, unsigned int timeout)
{
    return nvmlEventSetWait_v2(set, out, timeout);
}
