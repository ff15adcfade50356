/*
 * Checkpoints: a process that is locked puts its device memory on the host and takes it again. Any process may ask for it. Calls
 * of the locked process are not held up here; it must make none.
 */
#include "device.h"

enum { RUNNING, LOCKED, CHECKPOINTED };

/* The process's slot on a device; NULL: it does not use it. */
static struct sim_slot *slot_of(const struct sim_device *device, int pid)
{
    for (int i = 0; pid > 0 && i < SIM_SLOTS; i++)
        if (atomic_load(&device->unit->slots[i].pid) == pid)
            return &device->unit->slots[i];
    return NULL;
}

/* Where a process is on its way; false: it uses none of the devices. */
static bool stage_of(int pid, unsigned int *stage)
{
    for (int i = 0; i < sim_device_count(); i++) {
        const struct sim_slot *slot = slot_of(sim_device(i), pid);
        if (slot == NULL)
            continue;
        *stage = atomic_load(&slot->stage);
        return true;
    }
    return false;
}

static void set_stage(int pid, unsigned int stage)
{
    for (int i = 0; i < sim_device_count(); i++) {
        struct sim_slot *slot = slot_of(sim_device(i), pid);
        if (slot != NULL)
            atomic_store(&slot->stage, stage);
    }
}

static CUresult need(int pid, unsigned int expected)
{
    unsigned int stage;
    SIM_NEED_INIT();
    if (!stage_of(pid, &stage))
        return CUDA_ERROR_INVALID_VALUE;
    return stage == expected ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}

static CUresult step(int pid, unsigned int from, unsigned int to)
{
    CUresult result = need(pid, from);
    if (result == CUDA_SUCCESS)
        set_stage(pid, to);
    return result;
}

SIM_API CUresult cuCheckpointProcessLock(int pid, const void *options)
{
    (void)options;
    return step(pid, RUNNING, LOCKED);
}

SIM_API CUresult cuCheckpointProcessUnlock(int pid, const void *options)
{
    (void)options;
    return step(pid, LOCKED, RUNNING);
}

static void put_aside(struct sim_slot *slot)
{
    atomic_store(&slot->aside, atomic_exchange(&slot->memory, 0));
}

SIM_API CUresult cuCheckpointProcessCheckpoint(int pid, const void *options)
{
    (void)options;
    CUresult result = need(pid, LOCKED);
    if (result != CUDA_SUCCESS)
        return result;
    for (int i = 0; i < sim_device_count(); i++) {
        struct sim_slot *slot = slot_of(sim_device(i), pid);
        if (slot != NULL)
            put_aside(slot);
    }
    set_stage(pid, CHECKPOINTED);
    return CUDA_SUCCESS;
}

static bool take_again(const struct sim_device *device, struct sim_slot *slot)
{
    uint64_t bytes = atomic_load(&slot->aside);
    return sim_memory_charge(device->unit, (int)(slot - device->unit->slots), bytes, device->total);
}

/* All or nothing: what was taken before a device that is too full is put aside again. */
SIM_API CUresult cuCheckpointProcessRestore(int pid, const void *options)
{
    (void)options;
    CUresult result = need(pid, CHECKPOINTED);
    if (result != CUDA_SUCCESS)
        return result;
    for (int i = 0; i < sim_device_count(); i++) {
        struct sim_slot *slot = slot_of(sim_device(i), pid);
        if (slot == NULL || take_again(sim_device(i), slot))
            continue;
        while (--i >= 0)
            if ((slot = slot_of(sim_device(i), pid)) != NULL)
                put_aside(slot);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    set_stage(pid, LOCKED);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCheckpointProcessGetState(int pid, int *state)
{
    unsigned int stage;
    SIM_NEED_INIT();
    if (state == NULL || !stage_of(pid, &stage))
        return CUDA_ERROR_INVALID_VALUE;
    *state = (int)stage;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *thread)
{
    unsigned int stage;
    SIM_NEED_INIT();
    if (thread == NULL || !stage_of(pid, &stage))
        return CUDA_ERROR_INVALID_VALUE;
    *thread = pid;
    return CUDA_SUCCESS;
}
