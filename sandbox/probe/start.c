/* Before and at the start: what works without cuInit, and how entries are looked up. */
#include <stdio.h>

#include "driver.h"

void probe_start(void)
{
    int number = 0;
    size_t size = 0;
    pointer p = 0;
    void *handle = NULL;
    const char *text = NULL;
    say("start.cuDriverGetVersion.NULL", ASK((int *), 2020, "cuDriverGetVersion")(NULL));
    ASK((int *), 2020, "cuDriverGetVersion")(&number);
    say("card.driver_version", number);
    say("start.cuDeviceGetCount", ASK((int *), 2000, "cuDeviceGetCount")(&number));
    say("start.cuDeviceGet", ASK((int *, int), 2000, "cuDeviceGet")(&number, 0));
    say("start.cuMemAlloc", ASK((pointer *, size_t), 3020, "cuMemAlloc")(&p, 1));
    say("start.cuMemGetInfo", ASK((size_t *, size_t *), 3020, "cuMemGetInfo")(&size, &size));
    say("start.cuCtxGetCurrent", ASK((void **), 4000, "cuCtxGetCurrent")(&handle));
    say("start.cuStreamCreate", ASK((void **, unsigned), 2000, "cuStreamCreate")(&handle, 0));
    say("start.cuGetErrorName.0", ASK((int, const char **), 6000, "cuGetErrorName")(0, &text));
    say_text("start.cuGetErrorName.2", ASK((int, const char **), 6000, "cuGetErrorName")(2, &text) == 0 ? text : "");
    say("start.cuGetErrorName.unknown", ASK((int, const char **), 6000, "cuGetErrorName")(12345, &text));
    say("start.cuGetErrorString.NULL", ASK((int, const char **), 6000, "cuGetErrorString")(2, NULL));
    say("start.cuInit.flags", ASK((unsigned), 2000, "cuInit")(1));
    say("start.cuInit", ASK((unsigned), 2000, "cuInit")(0));
    say("start.cuInit.again", ASK((unsigned), 2000, "cuInit")(0));
}

static void look_up(const char *name, int version, uint64_t flags)
{
    char probe[128], answer[128];
    const char *symbol = "";
    int status = -1;
    int result = driver_look_up(name, version, flags, &status, &symbol);
    snprintf(probe, sizeof probe, "lookup.%s.%d.%d", name, version, (int)flags);
    snprintf(answer, sizeof answer, "%d/%d", result, status);
    say_text(probe, answer);
}

void probe_lookup(void)
{
    static const struct {
        const char *name;
        int version;
        uint64_t flags;
    } questions[] = {
        {"cuInit", 2000, 0},           {"cuInit", 1000, 0},           {"cuMemAlloc", 2000, 0},
        {"cuMemAlloc", 3010, 0},       {"cuMemAlloc", 3020, 0},       {"cuMemAlloc", 12000, 2},
        {"cuMemAlloc_v2", 12000, 0},   {"cuCtxCreate", 3010, 0},      {"cuCtxCreate", 3020, 0},
        {"cuCtxCreate", 11040, 0},     {"cuCtxCreate", 12050, 0},     {"cuMemAllocAsync", 11010, 0},
        {"cuMemAllocAsync", 11020, 0}, {"cuMemAllocAsync", 11020, 2}, {"cuLaunchKernel", 4000, 0},
        {"cuLaunchKernel", 4000, 2},   {"cuLaunchKernel", 7000, 2},   {"cuLaunchKernel_ptsz", 12000, 0},
        {"cuMemcpyHtoD", 3020, 2},     {"cuMemcpyHtoD", 7000, 2},     {"cuNoSuchEntry", 12000, 0},
        {"", 12000, 0},                {"cuInit", 2000, 3},           {"cuInit", 2000, 4},
        {"cuInit", 99990, 0},          {"cuGetProcAddress", 11030, 0}, {"cuGetProcAddress", 12000, 0},
    };
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++)
        look_up(questions[i].name, questions[i].version, questions[i].flags);
}
