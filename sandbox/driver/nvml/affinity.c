/* Where a card is: its NUMA node, and the CPUs and memory near it, as Linux describes them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

SIM_API nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t handle, unsigned int *node)
{
    SIM_NEED_CARD(handle, view);
    if (node == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (view.card->numa_node < 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *node = (unsigned int)view.card->numa_node;
    return NVML_SUCCESS;
}

/* Sets bits low … high. */
static void set_bits(unsigned long *words, unsigned int count, unsigned long low, unsigned long high)
{
    const unsigned int width = 8 * sizeof *words;
    for (unsigned long bit = low; bit <= high && bit / width < count; bit++)
        words[bit / width] |= 1UL << bit % width;
}

/* Reads a list such as 0-3,8; all CPUs when the host has no such node. */
static void set_cpus(unsigned long *words, unsigned int count, int node)
{
    char path[96], text[1024] = "";
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        file = fopen("/sys/devices/system/cpu/online", "re");
    if (file == NULL)
        return;
    const char *at = fgets(text, sizeof text, file);
    fclose(file);
    while (at != NULL && *at >= '0' && *at <= '9') {
        char *end;
        unsigned long low = strtoul(at, &end, 10), high = low;
        if (*end == '-')
            high = strtoul(end + 1, &end, 10);
        set_bits(words, count, low, high);
        at = *end == ',' ? end + 1 : end;
    }
}

SIM_API nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t handle, unsigned int count, unsigned long *words,
                                                         unsigned int scope)
{
    SIM_NEED_CARD(handle, view);
    if (words == NULL || count == 0 || scope > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    memset(words, 0, count * sizeof *words);
    set_cpus(words, count, view.card->numa_node);
    return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t handle, unsigned int count, unsigned long *words)
{
    return nvmlDeviceGetCpuAffinityWithinScope(handle, count, words, 0);
}

SIM_API nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t handle, unsigned int count, unsigned long *words,
                                                 unsigned int scope)
{
    SIM_NEED_CARD(handle, view);
    if (words == NULL || count == 0 || scope > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    memset(words, 0, count * sizeof *words);
    unsigned long node = view.card->numa_node < 0 ? 0 : (unsigned long)view.card->numa_node;
    set_bits(words, count, node, node);
    return NVML_SUCCESS;
}
