/* Handles and what identifies a device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "../machine/visible.h"
#include "library.h"

SIM_API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    int cards[SIM_MAX_CARDS];
    nvmlReturn_t result = sim_nvml_need();
    if (result != NVML_SUCCESS || count == NULL)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    *count = (unsigned int)sim_nvml_cards(cards);
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return nvmlDeviceGetCount_v2(count);
}

static nvmlReturn_t give_handle(int card, int mig, nvmlDevice_t *out)
{
    nvmlReturn_t result = sim_nvml_reach(card);
    if (result != NVML_SUCCESS)
        return result;
    *out = sim_nvml_handle(card, mig);
    return sim_nvml_machine()->scenario.cards[card].lost ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *out)
{
    int cards[SIM_MAX_CARDS];
    nvmlReturn_t result = sim_nvml_need();
    if (result != NVML_SUCCESS)
        return result;
    if (out == NULL || index >= (unsigned int)sim_nvml_cards(cards))
        return NVML_ERROR_INVALID_ARGUMENT;
    return give_handle(cards[index], -1, out);
}

SIM_API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *out)
{
    return nvmlDeviceGetHandleByIndex_v2(index, out);
}

/* Finds a card, or a MIG instance of it, by UUID. */
static bool find_uuid(const char *uuid, int *card, int *mig)
{
    int cards[SIM_MAX_CARDS];
    int count = sim_nvml_cards(cards);
    for (int i = 0; i < count; i++) {
        const struct sim_card *candidate = &sim_nvml_machine()->scenario.cards[cards[i]];
        *card = cards[i];
        *mig = -1;
        if (strcmp(candidate->uuid, uuid) == 0)
            return true;
        for (*mig = 0; *mig < candidate->mig_count; ++*mig)
            if (strcmp(candidate->mig[*mig].uuid, uuid) == 0 && sim_mig_present(candidate, &candidate->mig[*mig]))
                return true;
    }
    return false;
}

SIM_API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out)
{
    int card, mig;
    nvmlReturn_t result = sim_nvml_need();
    if (result != NVML_SUCCESS)
        return result;
    if (uuid == NULL || out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    return find_uuid(uuid, &card, &mig) ? give_handle(card, mig, out) : NVML_ERROR_NOT_FOUND;
}

SIM_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *out)
{
    int cards[SIM_MAX_CARDS];
    nvmlReturn_t result = sim_nvml_need();
    if (result != NVML_SUCCESS)
        return result;
    if (bus == NULL || out == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    int count = sim_nvml_cards(cards);
    for (int i = 0; i < count; i++) {
        const char *id = sim_nvml_machine()->scenario.cards[cards[i]].bus_id;
        if (strcasecmp(bus, id) == 0 || strcasecmp(bus, id + 4) == 0)
            return give_handle(cards[i], -1, out);
    }
    return NVML_ERROR_NOT_FOUND;
}

SIM_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus, nvmlDevice_t *out)
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus, out);
}

SIM_API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned int *index)
{
    int cards[SIM_MAX_CARDS];
    SIM_NEED_VIEW(handle, view);
    if (index == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (view.mig != NULL) {
        *index = (unsigned int)(view.mig - view.card->mig);
        return NVML_SUCCESS;
    }
    int count = sim_nvml_cards(cards);
    for (int i = 0; i < count; i++)
        if (cards[i] == view.card_index)
            *index = (unsigned int)i;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t handle, char *name, unsigned int length)
{
    char text[2 * SIM_NAME + 8];
    SIM_NEED_VIEW(handle, view);
    snprintf(text, sizeof text, "%s%s%s", view.card->model, view.mig == NULL ? "" : " MIG ",
             view.mig == NULL ? "" : view.mig->profile);
    return sim_nvml_text(name, length, text);
}

SIM_API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t handle, char *uuid, unsigned int length)
{
    SIM_NEED_VIEW(handle, view);
    return sim_nvml_text(uuid, length, view.mig == NULL ? view.card->uuid : view.mig->uuid);
}

SIM_API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t handle, unsigned int *minor)
{
    SIM_NEED_CARD(handle, view);
    if (minor == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *minor = (unsigned int)view.card->minor;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t handle, char *serial, unsigned int length)
{
    char text[32];
    SIM_NEED_CARD(handle, view);
    snprintf(text, sizeof text, "16500000%05d", view.card->minor);
    return sim_nvml_text(serial, length, text);
}

void sim_nvml_pci(const char *bus, nvmlPciInfo_t *info)
{
    enum { H200 = 0x233510de };
    *info = (nvmlPciInfo_t){
        .domain = (unsigned int)strtoul(bus, NULL, 16),
        .bus = (unsigned int)strtoul(bus + 9, NULL, 16),
        .device = (unsigned int)strtoul(bus + 12, NULL, 16),
        .pciDeviceId = H200,
    };
    snprintf(info->busId, sizeof info->busId, "%.31s", bus);
    snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%.15s", bus + 4);
}

SIM_API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_t *info)
{
    SIM_NEED_CARD(handle, view);
    if (info == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    sim_nvml_pci(view.card->bus_id, info);
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t handle, nvmlPciInfo_t *info)
{
    return nvmlDeviceGetPciInfo_v3(handle, info);
}

SIM_API nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t handle, nvmlPciInfo_t *info)
{
    return nvmlDeviceGetPciInfo_v3(handle, info);
}

SIM_API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int *major, int *minor)
{
    SIM_NEED_VIEW(handle, view);
    if (major == NULL || minor == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *major = 9;
    *minor = 0;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t handle, unsigned int *architecture)
{
    enum { HOPPER = 9 };
    SIM_NEED_VIEW(handle, view);
    if (architecture == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *architecture = HOPPER;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t handle, unsigned int *brand)
{
    enum { NVIDIA = 14 };
    SIM_NEED_VIEW(handle, view);
    if (brand == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *brand = NVIDIA;
    return NVML_SUCCESS;
}
