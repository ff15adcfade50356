/* How cards are linked: what they share of the machine, and NVLink. NVML's reference tells what each level means. */
#include <stdio.h>
#include <string.h>

#include "library.h"

enum { SINGLE = 10, MULTIPLE = 20, HOSTBRIDGE = 30, NODE = 40, SYSTEM = 50 };
enum { REMOTE_GPU = 0, REMOTE_SWITCH = 2 };

/* How many parts, from the root complex down, two paths have in common. */
static int shared_parts(const char *one, const char *other)
{
    int parts = 0;
    while (*one != '\0') {
        size_t length = strcspn(one, "/");
        if (length != strcspn(other, "/") || strncmp(one, other, length) != 0)
            return parts;
        parts++;
        one += length + (one[length] == '/');
        other += length + (other[length] == '/');
    }
    return parts;
}

/* One switch: both are right below the same. Several: below the same, but not both right below. */
static unsigned int common_ancestor(const struct sim_card *one, const struct sim_card *other)
{
    int parts = shared_parts(one->pcie_path, other->pcie_path);
    if (parts > 1)
        return strcmp(one->pcie_path, other->pcie_path) == 0 ? SINGLE : MULTIPLE;
    if (parts == 1)
        return HOSTBRIDGE;
    return one->numa_node == other->numa_node ? NODE : SYSTEM;
}

SIM_API nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, unsigned int *level)
{
    SIM_NEED_CARD(one, first);
    SIM_NEED_CARD(other, second);
    if (level == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    *level = common_ancestor(first.card, second.card);
    return NVML_SUCCESS;
}

/* The card at the other end of a link, or SIM_NVSWITCH: NOT_SUPPORTED by cards that have no NVLink. */
static nvmlReturn_t other_end(const struct sim_card *card, unsigned int link, int *peer)
{
    if (card->nvlink_count == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    if (link >= (unsigned int)card->nvlink_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *peer = card->nvlinks[link];
    return NVML_SUCCESS;
}

/* A link to a card that fell off the bus is down. */
SIM_API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t handle, unsigned int link, unsigned int *active)
{
    int peer = 0;
    SIM_NEED_CARD(handle, view);
    nvmlReturn_t result = other_end(view.card, link, &peer);
    if (result != NVML_SUCCESS || active == NULL)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    bool reached = peer == SIM_NVSWITCH || !sim_nvml_machine()->scenario.cards[peer].lost;
    *active = reached && (int)link >= view.card->nvlinks_down;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t handle, unsigned int link, unsigned int *type)
{
    int peer = 0;
    SIM_NEED_CARD(handle, view);
    nvmlReturn_t result = other_end(view.card, link, &peer);
    if (result != NVML_SUCCESS || type == NULL)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    *type = peer == SIM_NVSWITCH ? REMOTE_SWITCH : REMOTE_GPU;
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t handle, unsigned int link, nvmlPciInfo_t *info)
{
    int peer = 0;
    SIM_NEED_CARD(handle, view);
    nvmlReturn_t result = other_end(view.card, link, &peer);
    if (result != NVML_SUCCESS || info == NULL)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    sim_nvml_pci(peer == SIM_NVSWITCH ? "00000000:C0:00.0" : sim_nvml_machine()->scenario.cards[peer].bus_id, info);
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t handle, unsigned int link, nvmlPciInfo_t *info)
{
    return nvmlDeviceGetNvLinkRemotePciInfo_v2(handle, link, info);
}
