/* Memory of a device and the processes that hold it. */
#include "library.h"

/* Total, reserved and used bytes. A card in MIG mode shows the sum of its instances. */
struct sizes {
    uint64_t total, reserved, used;
};

static struct sizes sizes_of(const struct sim_view *view)
{
    sim_unit_collect(view->unit);
    struct sizes sizes = {view->card->memory, view->card->reserved, sim_memory_used(view->unit)};
    if (view->mig != NULL)
        return (struct sizes){view->mig->memory, 0, sizes.used};
    for (int i = 0; view->card->mig_enabled && i < view->card->mig_count; i++) {
        struct sim_unit *unit = &sim_nvml_machine()->state->units[sim_unit_of_mig(view->card_index, i)];
        sim_unit_collect(unit);
        sizes.used += sim_memory_used(unit);
    }
    return sizes;
}

/* The first version counts what is reserved as used. */
SIM_API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t *memory)
{
    SIM_NEED_VIEW(handle, view);
    if (memory == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    struct sizes sizes = sizes_of(&view);
    uint64_t used = sizes.used + sizes.reserved;
    *memory = (nvmlMemory_t){.total = sizes.total, .free = sizes.total - used, .used = used};
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t *memory)
{
    SIM_NEED_VIEW(handle, view);
    if (memory == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != NVML_VERSION(nvmlMemory_v2_t, 2U))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    struct sizes sizes = sizes_of(&view);
    memory->total = sizes.total;
    memory->reserved = sizes.reserved;
    memory->used = sizes.used;
    memory->free = sizes.total - sizes.reserved - sizes.used;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t handle, nvmlBAR1Memory_t *memory)
{
    SIM_NEED_CARD(handle, view);
    if (memory == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *memory = (nvmlBAR1Memory_t){.total = view.card->memory, .free = view.card->memory - SIM_MIB, .used = SIM_MIB};
    return NVML_SUCCESS;
}

/* ---- processes ---- */

typedef void (*put_fn)(void *list, unsigned int at, nvmlProcessInfo_t info);

static void put_v1(void *list, unsigned int at, nvmlProcessInfo_t info)
{
    ((nvmlProcessInfo_v1_t *)list)[at] = (nvmlProcessInfo_v1_t){info.pid, info.usedGpuMemory};
}

static void put_v2(void *list, unsigned int at, nvmlProcessInfo_t info)
{
    ((nvmlProcessInfo_t *)list)[at] = info;
}

static void put_detail(void *list, unsigned int at, nvmlProcessInfo_t info)
{
    ((nvmlProcessDetail_v1_t *)list)[at] = (nvmlProcessDetail_v1_t){
        info.pid, info.usedGpuMemory, info.gpuInstanceId, info.computeInstanceId, 0};
}

/* Puts the processes of one unit behind the `count` already there; counts on where the list is full. */
static unsigned int put_unit(struct sim_unit *unit, const struct sim_mig *mig, void *list, unsigned int room,
                             unsigned int count, put_fn put)
{
    uint32_t used = atomic_load(&unit->slots_used);
    sim_unit_collect(unit);
    for (uint32_t i = 0; i < used; i++) {
        const struct sim_slot *slot = &unit->slots[i];
        int32_t pid = atomic_load(&slot->pid);
        if (pid == 0)
            continue;
        if (count < room)
            put(list, count, (nvmlProcessInfo_t){
                .pid = (unsigned int)pid,
                .usedGpuMemory = atomic_load(&slot->memory),
                .gpuInstanceId = mig == NULL ? NVML_NO_INSTANCE : (unsigned int)mig->gi,
                .computeInstanceId = mig == NULL ? NVML_NO_INSTANCE : (unsigned int)mig->ci,
            });
        count++;
    }
    return count;
}

static nvmlReturn_t list_processes(nvmlDevice_t handle, unsigned int *count, void *list, put_fn put)
{
    SIM_NEED_VIEW(handle, view);
    if (count == NULL || (*count > 0 && list == NULL))
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned int room = *count;
    unsigned int found = put_unit(view.unit, view.mig, list, room, 0, put);
    for (int i = 0; view.mig == NULL && i < view.card->mig_count; i++)
        found = put_unit(&sim_nvml_machine()->state->units[sim_unit_of_mig(view.card_index, i)],
                         &view.card->mig[i], list, room, found, put);
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t handle, unsigned int *count,
                                                          nvmlProcessInfo_v1_t *list)
{
    return list_processes(handle, count, list, put_v1);
}

SIM_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t handle, unsigned int *count,
                                                             nvmlProcessInfo_t *list)
{
    return list_processes(handle, count, list, put_v2);
}

SIM_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned int *count,
                                                             nvmlProcessInfo_t *list)
{
    return list_processes(handle, count, list, put_v2);
}

SIM_API nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t handle, nvmlProcessDetailList_v1_t *list)
{
    nvmlReturn_t ready = sim_nvml_need();
    if (ready != NVML_SUCCESS || list == NULL)
        return ready != NVML_SUCCESS ? ready : NVML_ERROR_INVALID_ARGUMENT;
    if (list->version != NVML_VERSION(nvmlProcessDetailList_v1_t, 1U))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (list->mode != 0) { /* 0: compute; there are no graphics or MPS processes */
        list->numProcArrayEntries = 0;
        return NVML_SUCCESS;
    }
    return list_processes(handle, &list->numProcArrayEntries, list->procArray, put_detail);
}

static nvmlReturn_t no_processes(nvmlDevice_t handle, unsigned int *count)
{
    SIM_NEED_VIEW(handle, view);
    if (count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    return NVML_SUCCESS;
}

#define NO_PROCESSES(name)                                                            \
    SIM_API nvmlReturn_t name(nvmlDevice_t handle, unsigned int *count, void *list)   \
    {                                                                                 \
        (void)list;                                                                   \
        return no_processes(handle, count);                                           \
    }

NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)
