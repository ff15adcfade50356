/* Devices and contexts. */
#include <stdio.h>

#include "driver.h"

static void attributes(void)
{
    /* What programs decide by: multiprocessors, managed memory, mappings, pools, hardware limits. */
    static const int known[] = {1, 5, 6, 8, 10, 12, 14, 16, 31, 38, 39, 40, 41, 51, 75, 76, 78, 83, 88, 89, 95, 97,
                                99, 102, 103, 106, 111, 115, 119, 120, 124, 125, 128, 130, 131, 132, 133, 134};
    char name[64];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        int value = 0;
        int result = ASK((int *, int, int), 2000, "cuDeviceGetAttribute")(&value, known[i], 0);
        snprintf(name, sizeof name, "card.attribute.%d", known[i]);
        say(name, result == 0 ? value : -result);
    }
}

void probe_device(void)
{
    int number = 0;
    size_t size = 0;
    char text[16];
    ASK((unsigned), 2000, "cuInit")(0);
    say("device.cuDeviceGetCount.NULL", ASK((int *), 2000, "cuDeviceGetCount")(NULL));
    say("device.cuDeviceGet.NULL", ASK((int *, int), 2000, "cuDeviceGet")(NULL, 0));
    say("device.cuDeviceGet.99", ASK((int *, int), 2000, "cuDeviceGet")(&number, 99));
    say("device.cuDeviceGet.-1", ASK((int *, int), 2000, "cuDeviceGet")(&number, -1));
    say("device.cuDeviceGetName.NULL", ASK((char *, int, int), 2000, "cuDeviceGetName")(NULL, 16, 0));
    say("device.cuDeviceGetName.0", ASK((char *, int, int), 2000, "cuDeviceGetName")(text, 0, 0));
    say("device.cuDeviceGetName.99", ASK((char *, int, int), 2000, "cuDeviceGetName")(text, 16, 99));
    say("device.cuDeviceTotalMem.NULL", ASK((size_t *, int), 3020, "cuDeviceTotalMem")(NULL, 0));
    say("device.cuDeviceTotalMem.99", ASK((size_t *, int), 3020, "cuDeviceTotalMem")(&size, 99));
    say("device.cuDeviceGetAttribute.NULL", ASK((int *, int, int), 2000, "cuDeviceGetAttribute")(NULL, 16, 0));
    say("device.cuDeviceGetAttribute.0", ASK((int *, int, int), 2000, "cuDeviceGetAttribute")(&number, 0, 0));
    say("device.cuDeviceGetAttribute.10000", ASK((int *, int, int), 2000, "cuDeviceGetAttribute")(&number, 10000, 0));
    say("device.cuDeviceGetAttribute.99", ASK((int *, int, int), 2000, "cuDeviceGetAttribute")(&number, 16, 99));
    ASK((size_t *, int), 3020, "cuDeviceTotalMem")(&size, 0);
    say("card.total", (long long)size);
    attributes();
}

/* What needs a context, without one. */
static void without(void)
{
    int number = 0;
    size_t size = 0;
    pointer p = 0;
    void *handle = NULL;
    say("context.none.cuMemAlloc", ASK((pointer *, size_t), 3020, "cuMemAlloc")(&p, 1));
    say("context.none.cuMemFree.0", ASK((pointer), 3020, "cuMemFree")(0));
    say("context.none.cuMemGetInfo", ASK((size_t *, size_t *), 3020, "cuMemGetInfo")(&size, &size));
    say("context.none.cuStreamCreate", ASK((void **, unsigned), 2000, "cuStreamCreate")(&handle, 0));
    say("context.none.cuEventCreate", ASK((void **, unsigned), 2000, "cuEventCreate")(&handle, 0));
    say("context.none.cuCtxGetDevice", ASK((int *), 2000, "cuCtxGetDevice")(&number));
    say("context.none.cuCtxSynchronize", ASK((void), 2000, "cuCtxSynchronize")());
    say("context.none.cuCtxPopCurrent", ASK((void **), 4000, "cuCtxPopCurrent")(&handle));
    handle = &handle;
    say("context.none.cuCtxGetCurrent", ASK((void **), 4000, "cuCtxGetCurrent")(&handle));
    say("context.none.cuCtxGetCurrent.is_null", handle == NULL);
    say("context.none.cuCtxSetCurrent.NULL", ASK((void *), 4000, "cuCtxSetCurrent")(NULL));
}

static void limits(void)
{
    char name[64];
    for (int limit = 0; limit < 3; limit++) {
        size_t value = 0;
        int result = ASK((size_t *, int), 3010, "cuCtxGetLimit")(&value, limit);
        snprintf(name, sizeof name, "context.cuCtxGetLimit.%d", limit);
        say(name, result == 0 ? (long long)value : -result);
    }
}

void probe_context(void)
{
    void *first = NULL, *second = NULL, *popped = NULL;
    size_t value = 0;
    unsigned flags = 0;
    int active = 0, device = -1;
    ASK((unsigned), 2000, "cuInit")(0);
    without();
    say("context.release.unretained", ASK((int), 11000, "cuDevicePrimaryCtxRelease")(0));
    say("context.retain.NULL", ASK((void **, int), 7000, "cuDevicePrimaryCtxRetain")(NULL, 0));
    say("context.retain.99", ASK((void **, int), 7000, "cuDevicePrimaryCtxRetain")(&first, 99));
    say("context.retain", ASK((void **, int), 7000, "cuDevicePrimaryCtxRetain")(&first, 0));
    ASK((void **, int), 7000, "cuDevicePrimaryCtxRetain")(&second, 0);
    say("context.retain.same", first == second);
    say("context.push", ASK((void *), 4000, "cuCtxPushCurrent")(first));
    say("context.cuCtxGetDevice", ASK((int *), 2000, "cuCtxGetDevice")(&device));
    say("context.cuCtxGetDevice.NULL", ASK((int *), 2000, "cuCtxGetDevice")(NULL));
    limits();
    say("context.cuCtxGetLimit.99", ASK((size_t *, int), 3010, "cuCtxGetLimit")(&value, 99));
    say("context.cuCtxGetLimit.NULL", ASK((size_t *, int), 3010, "cuCtxGetLimit")(NULL, 0));
    ASK((int, unsigned *, int *), 7000, "cuDevicePrimaryCtxGetState")(0, &flags, &active);
    say("context.state.active", active);
    say("context.pop", ASK((void **), 4000, "cuCtxPopCurrent")(&popped));
    say("context.pop.same", popped == first);
    say("context.destroy.primary", ASK((void *), 4000, "cuCtxDestroy")(first));
    say("context.release.1", ASK((int), 11000, "cuDevicePrimaryCtxRelease")(0));
    say("context.release.2", ASK((int), 11000, "cuDevicePrimaryCtxRelease")(0));
    say("context.release.3", ASK((int), 11000, "cuDevicePrimaryCtxRelease")(0));
    ASK((int, unsigned *, int *), 7000, "cuDevicePrimaryCtxGetState")(0, &flags, &active);
    say("context.state.released", active);
    say("context.create", ASK((void **, unsigned, int), 3020, "cuCtxCreate")(&first, 0, 0));
    say("context.create.flags", ASK((void **, unsigned, int), 3020, "cuCtxCreate")(&second, 0x1000, 0));
    say("context.destroy", ASK((void *), 4000, "cuCtxDestroy")(first));
    say("context.destroy.NULL", ASK((void *), 4000, "cuCtxDestroy")(NULL));
}
