/* What devices answer about themselves. */
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

SIM_API CUresult cuDeviceGetCount(int *count)
{
    SIM_NEED_INIT();
    if (count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *count = sim_device_count();
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    SIM_NEED_INIT();
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device(ordinal) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetName(char *name, int length, CUdevice ordinal)
{
    SIM_NEED_INIT();
    const struct sim_device *device = sim_device(ordinal);
    if (name == NULL || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    const char *profile = device->mig == NULL ? "" : device->mig->profile;
    snprintf(name, (size_t)length, "%s%s%s", device->card->model, *profile == '\0' ? "" : " MIG ", profile);
    return CUDA_SUCCESS;
}

/* The 16 bytes of "GPU-xxxxxxxx-xxxx-…" or "MIG-…". */
static CUuuid parse_uuid(const char *text)
{
    CUuuid uuid = {{0}};
    size_t digits = 0;
    for (text += 4; *text != '\0' && digits < 32; text++) {
        int digit = *text >= '0' && *text <= '9' ? *text - '0' : *text >= 'a' && *text <= 'f' ? *text - 'a' + 10 : -1;
        if (digit < 0)
            continue;
        uuid.bytes[digits / 2] = (unsigned char)(uuid.bytes[digits / 2] << 4 | digit);
        digits++;
    }
    return uuid;
}

/* The first version knows cards only; the second names the MIG instance. */
SIM_API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice ordinal)
{
    SIM_NEED_INIT();
    const struct sim_device *device = sim_device(ordinal);
    if (uuid == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    *uuid = parse_uuid(device->card->uuid);
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice ordinal)
{
    CUresult result = cuDeviceGetUuid(uuid, ordinal);
    if (result == CUDA_SUCCESS && sim_device(ordinal)->mig != NULL)
        *uuid = parse_uuid(sim_device(ordinal)->mig->uuid);
    return result;
}

SIM_API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal)
{
    SIM_NEED_INIT();
    const struct sim_device *device = sim_device(ordinal);
    if (bytes == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = device->total;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice ordinal)
{
    size_t total = 0;
    CUresult result = cuDeviceTotalMem_v2(bytes == NULL ? NULL : &total, ordinal);
    if (result == CUDA_SUCCESS)
        *bytes = total > UINT32_MAX ? UINT32_MAX : (unsigned int)total;
    return result;
}

SIM_API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice ordinal)
{
    SIM_NEED_INIT();
    if (major == NULL || minor == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device(ordinal) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    *major = 9;
    *minor = 0;
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice ordinal)
{
    SIM_NEED_INIT();
    const struct sim_device *device = sim_device(ordinal);
    if (text == NULL || length < 13)
        return CUDA_ERROR_INVALID_VALUE;
    if (device == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(text, (size_t)length, "%s", device->card->bus_id + 4); /* CUDA's domain has four digits, NVML's eight */
    return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetByPCIBusId(CUdevice *out, const char *text)
{
    SIM_NEED_INIT();
    if (out == NULL || text == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < sim_device_count(); i++) {
        const char *bus = sim_device(i)->card->bus_id;
        if (strcasecmp(text, bus) == 0 || strcasecmp(text, bus + 4) == 0) {
            *out = i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

SIM_API CUresult cuDeviceGetExecAffinitySupport(int *yes, int type, CUdevice ordinal)
{
    SIM_NEED_INIT();
    if (yes == NULL || type != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device(ordinal) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    *yes = 0;
    return CUDA_SUCCESS;
}

struct properties {
    int threads_per_block, block[3], grid[3], shared, constant, warp, pitch, registers, clock, texture_alignment;
};

SIM_API CUresult cuDeviceGetProperties(struct properties *out, CUdevice ordinal)
{
    SIM_NEED_INIT();
    if (out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device(ordinal) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    *out = (struct properties){1024, {1024, 1024, 64}, {2147483647, 65535, 65535}, 49152, 65536, 32,
                               2147483647, 65536, 1980000, 512};
    return CUDA_SUCCESS;
}
