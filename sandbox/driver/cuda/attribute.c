/* cuDeviceGetAttribute: the numbers of an H200, but for what the scenario says of the card. */
#include <stdlib.h>

#include "device.h"

enum { ATTRIBUTES = 162, BUS_ID = 33, PCI_DEVICE = 34, PCI_DOMAIN = 50, MULTIPROCESSORS = 16, HOST_NUMA = 134 };

static const int values[ATTRIBUTES] = {
#define ATTRIBUTE(number, value) [number] = value,
#include "../entries/attributes.def"
#undef ATTRIBUTE
};

/* A number within the bus id "DDDDDDDD:BB:SS.F". */
static int bus_part(const struct sim_device *device, int offset)
{
    return (int)strtol(device->card->bus_id + offset, NULL, 16);
}

/* An H200 has 132 multiprocessors; a compute slice of a MIG instance has 16 of them, a seven-slice one 132. */
static int multiprocessors(const struct sim_device *device)
{
    return device->mig == NULL || device->mig->slices >= SIM_MAX_MIG ? values[MULTIPROCESSORS] : 16 * device->mig->slices;
}

static int value_of(const struct sim_device *device, int attribute)
{
    switch (attribute) {
    case BUS_ID:
        return bus_part(device, 9);
    case PCI_DEVICE:
        return bus_part(device, 12);
    case PCI_DOMAIN:
        return bus_part(device, 0);
    case MULTIPROCESSORS:
        return multiprocessors(device);
    case HOST_NUMA:
        return device->card->numa_node;
    default:
        return values[attribute];
    }
}

SIM_API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice ordinal)
{
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    SIM_NEED_INIT();
    const struct sim_device *device = sim_device(ordinal);
    if (attribute <= 0 || attribute >= ATTRIBUTES)
        return CUDA_ERROR_INVALID_VALUE;
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    *value = value_of(device, attribute);
    return CUDA_SUCCESS;
}
