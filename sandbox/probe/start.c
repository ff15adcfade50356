/* Before and at the start: what works without cuInit, and how entries are looked up. */
#include <stdio.h>

#include "driver.h"

static void without_pointers(void)
{
    say("start.cuDriverGetVersion.NULL", ASK((int *), 2020, "cuDriverGetVersion")(NULL));
    say("start.cuDeviceGetCount.NULL", ASK((int *), 2000, "cuDeviceGetCount")(NULL));
    say("start.cuDeviceGetAttribute.NULL", ASK((int *, int, int), 2000, "cuDeviceGetAttribute")(NULL, 1, 0));
    say("start.cuMemGetInfo.NULL", ASK((size_t *, size_t *), 3020, "cuMemGetInfo")(NULL, NULL));
    say("start.cuMemGetInfo.2000.NULL", ASK((unsigned *, unsigned *), 2000, "cuMemGetInfo")(NULL, NULL));
    say("start.cuCtxDestroy.NULL", ASK((void *), 4000, "cuCtxDestroy")(NULL));
    say("start.cuCtxSetCurrent.NULL", ASK((void *), 4000, "cuCtxSetCurrent")(NULL));
    say("start.cuMemFree.0", ASK((pointer), 3020, "cuMemFree")(0));
}

static void before_start(void)
{
    int number = 55;
    size_t size = 5;
    pointer p = 0;
    void *handle = &number;
    say("start.cuDeviceGetCount", ASK((int *), 2000, "cuDeviceGetCount")(&number));
    say("start.cuDeviceGetCount.out", number);
    say("start.cuDeviceGet", ASK((int *, int), 2000, "cuDeviceGet")(&number, 0));
    say("start.cuMemAlloc", ASK((pointer *, size_t), 3020, "cuMemAlloc")(&p, 1));
    say("start.cuMemGetInfo", ASK((size_t *, size_t *), 3020, "cuMemGetInfo")(&size, &size));
    say("start.cuMemGetInfo.out", (long long)size);
    say("start.cuCtxGetCurrent", ASK((void **), 4000, "cuCtxGetCurrent")(&handle));
    say("start.cuCtxGetCurrent.is_untouched", handle == &number);
    say("start.cuStreamCreate", ASK((void **, unsigned), 2000, "cuStreamCreate")(&handle, 0));
}

static void errors(void)
{
    const char *text = "";
    say("start.cuGetErrorName.0", ASK((int, const char **), 6000, "cuGetErrorName")(0, &text));
    say_text("start.cuGetErrorName.2", ASK((int, const char **), 6000, "cuGetErrorName")(2, &text) == 0 ? text : "");
    say("start.cuGetErrorName.unknown", ASK((int, const char **), 6000, "cuGetErrorName")(12345, &text));
    say("start.cuGetErrorName.unknown.is_null", text == NULL);
}

static void tables(void)
{
    static const unsigned char unknown[16];
    const void *table = unknown;
    int (*ask)(const void **, const void *) = ASK((const void **, const void *), 3000, "cuGetExportTable");
    say("start.cuGetExportTable.unknown", ask(&table, unknown));
    say("start.cuGetExportTable.unknown.is_null", table == NULL);
    say("start.cuGetExportTable.NULL", ask(NULL, unknown));
    say("start.cuGetExportTable.NULL.id", ask(&table, NULL));
}

void probe_start(void)
{
    int number = 0;
    ASK((int *), 2020, "cuDriverGetVersion")(&number);
    say("card.driver_version", number);
    without_pointers();
    before_start();
    errors();
    tables();
    say("start.cuInit.flags", ASK((unsigned), 2000, "cuInit")(1));
    say("start.cuInit", ASK((unsigned), 2000, "cuInit")(0));
    say("start.cuInit.again", ASK((unsigned), 2000, "cuInit")(0));
    say("start.cuInit.flags.again", ASK((unsigned), 2000, "cuInit")(1));
    ASK((int *), 2020, "cuDriverGetVersion")(&number);
    say("card.driver_version.started", number);
}

static void look_up(const char *name, int version, uint64_t flags)
{
    char probe[128], answer[128];
    const char *symbol = "";
    int status = -1;
    int result = driver_look_up(name, version, flags, &status, &symbol);
    snprintf(probe, sizeof probe, "lookup.%s.%d.%d", name, version, (int)flags);
    snprintf(answer, sizeof answer, "%d/%d %s", result, status, symbol);
    say_text(probe, answer);
}

/* Names with several versions and flavours, and what is no name, no version and no flag. The answer: result/status symbol. */
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
        {"cuCtxCreate", 11040, 0},     {"cuMemAllocAsync", 11010, 0}, {"cuMemAllocAsync", 11020, 0},
        {"cuMemAllocAsync", 11020, 2}, {"cuMemAllocAsync", 11020, 3}, {"cuLaunchKernel", 4000, 0},
        {"cuLaunchKernel", 4000, 2},   {"cuLaunchKernel", 7000, 2},   {"cuLaunchKernel", 7000, 3},
        {"cuLaunchKernel_ptsz", 12000, 0}, {"cuMemcpyHtoD", 3020, 2}, {"cuMemcpyHtoD", 7000, 2},
        {"cuNoSuchEntry", 12000, 0},   {"", 12000, 0},                {" cuInit", 2000, 0},
        {"cuinit", 2000, 0},           {"cuInit", 2000, 3},           {"cuInit", 2000, 4},
        {"cuInit", 99990, 0},          {"cuInit", -1, 0},             {"cuMemAlloc", -1, 0},
        {"cuMemAlloc", 0, 0},          {"cuGetProcAddress", 11030, 0}, {"cuGetProcAddress", 12000, 0},
    };
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++)
        look_up(questions[i].name, questions[i].version, questions[i].flags);
}
