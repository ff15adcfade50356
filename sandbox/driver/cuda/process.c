/* cuInit, the list of devices, and what becomes of them over fork and exit. */
#include <stdlib.h>
#include <string.h>

#include "../machine/visible.h"
#include "managed.h"

static struct sim_machine machine;
static struct sim_device devices[SIM_MAX_DEVICES];
static int device_count;
static _Atomic bool ready;
static _Atomic bool forked; /* a child of a process that used CUDA: it cannot */
static CUresult init_result;
static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;

bool sim_ready(void)
{
    return atomic_load_explicit(&ready, memory_order_acquire);
}

struct sim_device *sim_device(CUdevice ordinal)
{
    return ordinal < 0 || ordinal >= device_count ? NULL : &devices[ordinal];
}

struct sim_device *sim_device_at(CUmemLocation location)
{
    enum { WHOLE = CU_MEM_LOCATION_TYPE_DEVICE, PART = CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN, BYTE = 0xff };
    return location.type == WHOLE ? sim_device(location.id) : location.type == PART ? sim_device(location.id & BYTE) : NULL;
}

int sim_unit_index(const struct sim_unit *unit)
{
    return (int)(unit - machine.state->units);
}

struct sim_device *sim_device_of_unit(int unit)
{
    for (int i = 0; i < device_count; i++)
        if (sim_unit_index(devices[i].unit) == unit)
            return &devices[i];
    return NULL;
}

int sim_device_count(void)
{
    return device_count;
}

const struct sim_scenario *sim_scenario(void)
{
    return &machine.scenario;
}

static void fill_device(struct sim_device *device, struct sim_choice choice)
{
    const struct sim_card *card = &machine.scenario.cards[choice.card];
    device->ordinal = (CUdevice)(device - devices);
    device->card = card;
    device->mig = choice.mig < 0 ? NULL : &card->mig[choice.mig];
    int unit = choice.mig < 0 ? sim_unit_of_card(choice.card) : sim_unit_of_mig(choice.card, choice.mig);
    device->unit = &machine.state->units[unit];
    device->total = choice.mig < 0 ? card->memory - card->reserved : device->mig->memory;
    device->slot = SIM_NO_SLOT;
    pthread_mutex_init(&device->lock, NULL);
    pthread_mutex_init(&device->primary_lock, NULL);
}

static void become_child(void)
{
    if (atomic_exchange(&ready, false))
        atomic_store(&forked, true);
}

static CUresult initialise(void)
{
    struct sim_choice choices[SIM_MAX_DEVICES];
    if (!sim_machine_open(&machine, getenv("SIMGPU_DIR")))
        return CUDA_ERROR_NO_DEVICE;
    device_count = sim_visible(&machine.scenario, choices);
    for (int i = 0; i < device_count; i++) {
        fill_device(&devices[i], choices[i]);
        sim_unit_collect(devices[i].unit); /* what this process had before an exec */
    }
    pthread_atfork(NULL, NULL, become_child);
    if (device_count == 0)
        return CUDA_ERROR_NO_DEVICE;
    atomic_store_explicit(&ready, true, memory_order_release);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuInit(unsigned int flags)
{
    static bool tried;
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (atomic_load(&forked))
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&init_lock);
    if (!tried)
        init_result = initialise();
    tried = true;
    CUresult result = init_result;
    pthread_mutex_unlock(&init_lock);
    return result;
}

int sim_driver_version(void)
{
    enum { NEWEST = 13050 };
    return sim_ready() ? machine.scenario.cuda_version : NEWEST;
}

SIM_API CUresult cuDriverGetVersion(int *version)
{
    if (version == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *version = sim_driver_version();
    return CUDA_SUCCESS;
}

bool sim_device_attach(struct sim_device *device)
{
    pthread_mutex_lock(&device->lock);
    if (device->slot == SIM_NO_SLOT)
        device->slot = sim_slot_claim(device->unit);
    bool attached = device->slot != SIM_NO_SLOT;
    pthread_mutex_unlock(&device->lock);
    return attached;
}

bool sim_device_charge_now(struct sim_device *device, uint64_t bytes)
{
    return sim_memory_charge(device->unit, device->slot, bytes, device->total);
}

bool sim_device_charge(struct sim_device *device, uint64_t bytes)
{
    if (sim_device_charge_now(device, bytes))
        return true;
    return sim_managed_evict(device, bytes) && sim_device_charge_now(device, bytes);
}

void sim_device_release(struct sim_device *device, uint64_t bytes)
{
    sim_memory_release(device->unit, device->slot, bytes);
}

/* A process that ends in order gives everything back; one that is killed is collected by the others. */
__attribute__((destructor)) static void leave(void)
{
    if (!atomic_exchange(&ready, false))
        return;
    for (int i = 0; i < device_count; i++)
        if (devices[i].slot != SIM_NO_SLOT)
            sim_slot_release(devices[i].unit, devices[i].slot);
}
