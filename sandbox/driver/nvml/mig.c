/* MIG: the mode of a card, and its instances as devices. Instances are made by the scenario, not through NVML. */
#include "../machine/visible.h"
#include "library.h"

SIM_API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t handle, unsigned int *current, unsigned int *pending)
{
    SIM_NEED_CARD(handle, view);
    if (current == NULL || pending == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *current = *pending = view.card->mig_enabled;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t handle, unsigned int *is_mig)
{
    SIM_NEED_VIEW(handle, view);
    if (is_mig == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *is_mig = view.mig != NULL;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t handle, unsigned int *count)
{
    SIM_NEED_CARD(handle, view);
    if (count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = view.card->mig_enabled ? SIM_MAX_MIG : 0;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t handle, unsigned int index, nvmlDevice_t *out)
{
    SIM_NEED_CARD(handle, view);
    if (out == NULL || index >= SIM_MAX_MIG)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!view.card->mig_enabled || index >= (unsigned int)view.card->mig_count ||
        !sim_mig_present(view.card, &view.card->mig[index]))
        return NVML_ERROR_NOT_FOUND;
    *out = sim_nvml_handle(view.card_index, (int)index);
    return NVML_SUCCESS;
}

static nvmlReturn_t need_mig(nvmlDevice_t handle, struct sim_view *view)
{
    nvmlReturn_t result = sim_nvml_view(handle, view);
    if (result == NVML_SUCCESS && view->mig == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    return result;
}

SIM_API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t handle, nvmlDevice_t *out)
{
    struct sim_view view;
    nvmlReturn_t result = need_mig(handle, &view);
    if (result != NVML_SUCCESS || out == NULL)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    *out = sim_nvml_handle(view.card_index, -1);
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t handle, unsigned int *id)
{
    struct sim_view view;
    nvmlReturn_t result = need_mig(handle, &view);
    if (result != NVML_SUCCESS || id == NULL)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    *id = (unsigned int)view.mig->gi;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t handle, unsigned int *id)
{
    struct sim_view view;
    nvmlReturn_t result = need_mig(handle, &view);
    if (result != NVML_SUCCESS || id == NULL)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    *id = (unsigned int)view.mig->ci;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t handle, nvmlDeviceAttributes_t *out)
{
    enum { MULTIPROCESSORS_PER_SLICE = 16 };
    struct sim_view view;
    nvmlReturn_t ready = sim_nvml_need();
    if (ready != NVML_SUCCESS)
        return ready;
    nvmlReturn_t result = need_mig(handle, &view);
    if (result != NVML_SUCCESS || out == NULL)
        return result == NVML_SUCCESS || view.mig == NULL ? NVML_ERROR_INVALID_ARGUMENT : result;
    unsigned int slices = (unsigned int)view.mig->slices;
    *out = (nvmlDeviceAttributes_t){
        .multiprocessorCount = slices >= SIM_MAX_MIG ? 132 : slices * MULTIPROCESSORS_PER_SLICE,
        .sharedCopyEngineCount = slices,
        .sharedDecoderCount = slices,
        .gpuInstanceSliceCount = slices,
        .computeInstanceSliceCount = slices,
        .memorySizeMB = view.mig->memory / SIM_MIB,
    };
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t handle, nvmlDeviceAttributes_t *out)
{
    return nvmlDeviceGetAttributes_v2(handle, out);
}
