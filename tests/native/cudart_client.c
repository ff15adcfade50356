/*
 * A CUDA program that finds the driver as libcudart does: dlopen("libcuda.so.1"), dlsym, dlvsym and cuGetProcAddress_v2 with
 * names, versions and flags. It takes its commands from the command line and answers one JSON object a line.
 *
 *     cudart_client [--by gpa|dlsym|dlvsym] [--order FILE] [--per-thread] [--device N] COMMAND…
 *
 * --by: how entries are found. gpa (default) asks cuGetProcAddress_v2 for plain names, with the version whose ABI is spoken here
 * and the kind of default stream; dlsym asks for the ABI's names; dlvsym does so with a version, and without one where that
 * finds nothing (drivers do not version their names). --order: all look-ups are made at the start, as FILE lists those of a release
 * of libcudart (tests/data/cudart), and entries are picked from what they found. Commands, in the order given, on one stack of what was allocated:
 *
 *     info                 cuMemGetInfo             {"do":"info","result":0,"free":…,"total":…}
 *     total                cuDeviceTotalMem         {"do":"total","result":0,"bytes":…}
 *     alloc BYTES          cuMemAlloc; pushes       {"do":"alloc","result":0}
 *     pitch WIDTH ROWS     cuMemAllocPitch; pushes
 *     managed BYTES        cuMemAllocManaged; pushes
 *     async BYTES          cuMemAllocAsync; pushes
 *     pool BYTES           cuMemAllocFromPoolAsync from a pool of its own; pushes
 *     create BYTES         cuMemCreate; pushes
 *     map BYTES            cuMemAddressReserve, cuMemCreate, cuMemMap, cuMemSetAccess, cuMemRelease; pushes the mapping
 *     array WIDTH ROWS     cuArrayCreate of bytes; pushes
 *     host BYTES           cuMemHostAlloc; pushes
 *     free                 pops, and frees by the kind's own call (cuMemFree, cuMemRelease, cuMemUnmap, …)
 *     freeasync            pops, and frees with cuMemFreeAsync whatever the kind of pointer
 *     fill VALUE           cuMemsetD8 over the last allocation, copied back and compared: {"same":true}
 *     launch NS COUNT      cuLaunchKernel of aliquot_spin, COUNT times
 *     launchex NS COUNT    the same by cuLaunchKernelEx
 *     graph NS COUNT       captures one launch, instantiates it, launches the graph COUNT times
 *     sync                 cuCtxSynchronize
 *     lookup NAME VERSION FLAGS   cuGetProcAddress_v2  {"do":"lookup","result":0,"status":0,"symbol":"cuMemAlloc_v2"}
 *     looked               what the look-ups of --order found  {"do":"looked","name":…,"version":…,"flags":…,"status":…,"symbol":…,"file":…}
 *     repeat N BYTES       cuMemAlloc + cuMemFree, N times; the first failure ends it  {"done":N}
 *     until BYTES          cuMemAlloc of BYTES until it fails; pushes nothing, keeps all  {"count":…,"result":2}
 *     wait                 reads a line from stdin (or its end), so that others may look meanwhile
 *
 * Results are the driver's numbers. The exit status is 0 unless the command line is wrong or no driver is found (then 2).
 */
#include "cudart_lookup.h"

/* ---- what was allocated ---- */

enum kind { POINTER, PHYSICAL, MAPPING, ARRAY, HOST };

struct block {
    enum kind kind;
    pointer value;
    size_t size;
};

static struct block stack[65536];
static size_t depth;

static void push(int result, enum kind kind, pointer value, size_t size)
{
    if (result == 0 && depth < sizeof stack / sizeof *stack)
        stack[depth++] = (struct block){kind, value, size};
}

static void answer(const char *what, int result)
{
    printf("{\"do\":\"%s\",\"result\":%d}\n", what, result);
}

static size_t number(const char *text)
{
    return strtoull(text, NULL, 0);
}

/* ---- allocating ---- */

static void do_alloc(char **args)
{
    pointer p = 0;
    int result = CALL((pointer *, size_t), 3020, "cuMemAlloc", "cuMemAlloc_v2", NULL)(&p, number(args[0]));
    push(result, POINTER, p, number(args[0]));
    answer("alloc", result);
}

static void do_pitch(char **args)
{
    pointer p = 0;
    size_t pitch = 0;
    int result = CALL((pointer *, size_t *, size_t, size_t, unsigned), 3020, "cuMemAllocPitch", "cuMemAllocPitch_v2", NULL)(
        &p, &pitch, number(args[0]), number(args[1]), 4);
    push(result, POINTER, p, pitch * number(args[1]));
    answer("pitch", result);
}

static void do_managed(char **args)
{
    pointer p = 0;
    int result = CALL((pointer *, size_t, unsigned), 6000, "cuMemAllocManaged", "cuMemAllocManaged", NULL)(&p, number(args[0]), 1);
    push(result, POINTER, p, number(args[0]));
    answer("managed", result);
}

static void do_async(char **args)
{
    pointer p = 0;
    int result = CALL((pointer *, size_t, void *), 11020, "cuMemAllocAsync", "cuMemAllocAsync", "cuMemAllocAsync_ptsz")(
        &p, number(args[0]), NULL);
    push(result, POINTER, p, number(args[0]));
    answer("async", result);
}

static void do_pool(char **args)
{
    static void *pool;
    pointer p = 0;
    struct pool_props props = {.type = 1, .location = {1, device}};
    int result = 0;
    if (pool == NULL)
        result = CALL((void **, const struct pool_props *), 11020, "cuMemPoolCreate", "cuMemPoolCreate", NULL)(&pool, &props);
    if (result == 0)
        result = CALL((pointer *, size_t, void *, void *), 11020, "cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync",
                      "cuMemAllocFromPoolAsync_ptsz")(&p, number(args[0]), pool, NULL);
    push(result, POINTER, p, number(args[0]));
    answer("pool", result);
}

static int create(uint64_t *handle, size_t size)
{
    struct prop prop = {.type = 1, .location = {1, device}};
    return CALL((uint64_t *, size_t, const struct prop *, uint64_t), 10020, "cuMemCreate", "cuMemCreate", NULL)(handle, size, &prop, 0);
}

static void do_create(char **args)
{
    uint64_t handle = 0;
    int result = create(&handle, number(args[0]));
    push(result, PHYSICAL, handle, number(args[0]));
    answer("create", result);
}

static int release(uint64_t handle)
{
    return CALL((uint64_t), 10020, "cuMemRelease", "cuMemRelease", NULL)(handle);
}

static int map(pointer base, size_t size, uint64_t handle)
{
    struct access access = {{1, device}, 3};
    int result = CALL((pointer, size_t, size_t, uint64_t, uint64_t), 10020, "cuMemMap", "cuMemMap", NULL)(base, size, 0, handle, 0);
    if (result != 0)
        return result;
    return CALL((pointer, size_t, const struct access *, size_t), 10020, "cuMemSetAccess", "cuMemSetAccess", NULL)(base, size, &access, 1);
}

static void do_map(char **args)
{
    size_t size = number(args[0]);
    pointer base = 0;
    uint64_t handle = 0;
    int result = CALL((pointer *, size_t, size_t, pointer, uint64_t), 10020, "cuMemAddressReserve", "cuMemAddressReserve", NULL)(
        &base, size, 0, 0, 0);
    if (result == 0)
        result = create(&handle, size);
    if (result == 0) {
        result = map(base, size, handle);
        release(handle); /* the mapping keeps the memory */
    }
    push(result, MAPPING, base, size);
    answer("map", result);
}

static void do_array(char **args)
{
    struct {
        size_t width, height;
        int format;
        unsigned channels;
    } descriptor = {number(args[0]), number(args[1]), 1, 1};
    void *array = NULL;
    int result = CALL((void **, const void *), 3020, "cuArrayCreate", "cuArrayCreate_v2", NULL)(&array, &descriptor);
    push(result, ARRAY, (pointer)array, number(args[0]) * number(args[1]));
    answer("array", result);
}

static void do_host(char **args)
{
    void *p = NULL;
    int result = CALL((void **, size_t, unsigned), 2020, "cuMemHostAlloc", "cuMemHostAlloc", NULL)(&p, number(args[0]), 0);
    push(result, HOST, (pointer)p, number(args[0]));
    answer("host", result);
}

/* ---- freeing ---- */

static int unmap(struct block block)
{
    int result = CALL((pointer, size_t), 10020, "cuMemUnmap", "cuMemUnmap", NULL)(block.value, block.size);
    if (result != 0)
        return result;
    return CALL((pointer, size_t), 10020, "cuMemAddressFree", "cuMemAddressFree", NULL)(block.value, block.size);
}

static int free_block(struct block block)
{
    switch (block.kind) {
    case POINTER:
        return CALL((pointer), 3020, "cuMemFree", "cuMemFree_v2", NULL)(block.value);
    case PHYSICAL:
        return release(block.value);
    case MAPPING:
        return unmap(block);
    case ARRAY:
        return CALL((void *), 2000, "cuArrayDestroy", "cuArrayDestroy", NULL)((void *)block.value);
    case HOST:
        return CALL((void *), 2000, "cuMemFreeHost", "cuMemFreeHost", NULL)((void *)block.value);
    }
    return -1;
}

static void do_free(char **args)
{
    (void)args;
    answer("free", depth == 0 ? -1 : free_block(stack[--depth]));
}

static void do_freeasync(char **args)
{
    (void)args;
    int result = -1;
    if (depth > 0)
        result = CALL((pointer, void *), 11020, "cuMemFreeAsync", "cuMemFreeAsync", "cuMemFreeAsync_ptsz")(stack[--depth].value, NULL);
    answer("freeasync", result);
}

/* ---- asking ---- */

static void do_info(char **args)
{
    (void)args;
    size_t unused = 0, total = 0;
    int result = CALL((size_t *, size_t *), 3020, "cuMemGetInfo", "cuMemGetInfo_v2", NULL)(&unused, &total);
    printf("{\"do\":\"info\",\"result\":%d,\"free\":%zu,\"total\":%zu}\n", result, unused, total);
}

static void do_total(char **args)
{
    (void)args;
    size_t total = 0;
    int result = CALL((size_t *, int), 3020, "cuDeviceTotalMem", "cuDeviceTotalMem_v2", NULL)(&total, device);
    printf("{\"do\":\"total\",\"result\":%d,\"bytes\":%zu}\n", result, total);
}

static void do_fill(char **args)
{
    int result = -1, value = (int)number(args[0]);
    size_t size = depth == 0 ? 0 : stack[depth - 1].size, same = 0;
    unsigned char *copy = malloc(size + 1);
    if (depth > 0)
        result = CALL((pointer, unsigned char, size_t), 3020, "cuMemsetD8", "cuMemsetD8_v2", "cuMemsetD8_v2_ptds")(
            stack[depth - 1].value, (unsigned char)value, size);
    if (result == 0)
        result = CALL((void *, pointer, size_t), 3020, "cuMemcpyDtoH", "cuMemcpyDtoH_v2", "cuMemcpyDtoH_v2_ptds")(
            copy, stack[depth - 1].value, size);
    while (result == 0 && same < size && copy[same] == (unsigned char)value)
        same++;
    printf("{\"do\":\"fill\",\"result\":%d,\"same\":%s}\n", result, size > 0 && same == size ? "true" : "false");
    free(copy);
}

/* The exported name of an entry, as the dynamic linker knows it. */
static void do_lookup(char **args)
{
    void *entry = NULL;
    int status = -1;
    int result = get_proc_address(args[0], &entry, (int)number(args[1]), number(args[2]), &status);
    printf("{\"do\":\"lookup\",\"result\":%d,\"status\":%d,\"symbol\":\"%s\"}\n", result, status, symbol_of(entry));
}

static void do_looked(char **args)
{
    (void)args;
    for (const struct looked_up *one = order; one < order + ordered; one++) {
        Dl_info info = {0};
        if (one->entry != NULL)
            dladdr(one->entry, &info);
        printf("{\"do\":\"looked\",\"name\":\"%s\",\"version\":%d,\"flags\":%lu,\"status\":%d,\"symbol\":\"%s\",\"file\":\"%s\"}\n",
               one->name, one->version, one->flags, one->status, symbol_of(one->entry),
               info.dli_fname == NULL ? "" : info.dli_fname);
    }
}

static void do_repeat(char **args)
{
    size_t rounds = number(args[0]), done = 0;
    int (*allocate)(pointer *, size_t) = CALL((pointer *, size_t), 3020, "cuMemAlloc", "cuMemAlloc_v2", NULL);
    int (*give)(pointer) = CALL((pointer), 3020, "cuMemFree", "cuMemFree_v2", NULL);
    pointer p = 0;
    int result = 0;
    for (; done < rounds && result == 0; done += result == 0) {
        result = allocate(&p, number(args[1]));
        if (result == 0)
            result = give(p);
    }
    printf("{\"do\":\"repeat\",\"result\":%d,\"done\":%zu}\n", result, done);
}

static void do_until(char **args)
{
    int (*allocate)(pointer *, size_t) = CALL((pointer *, size_t), 3020, "cuMemAlloc", "cuMemAlloc_v2", NULL);
    size_t count = 0;
    pointer p = 0;
    int result;
    while ((result = allocate(&p, number(args[0]))) == 0)
        count++;
    printf("{\"do\":\"until\",\"result\":%d,\"count\":%zu}\n", result, count);
}

static void do_wait(char **args)
{
    (void)args;
    printf("{\"do\":\"wait\",\"result\":0}\n");
    for (int c = getchar(); c != '\n' && c != EOF;)
        c = getchar();
}

/* ---- work ---- */

static const char SPIN[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                           ".visible .entry aliquot_spin(.param .u64 nanoseconds)\n{\n"
                           ".reg .pred %more;\n.reg .b64 %now, %end, %length;\n"
                           "ld.param.u64 %length, [nanoseconds];\nmov.u64 %end, %globaltimer;\nadd.u64 %end, %end, %length;\n"
                           "again:\nmov.u64 %now, %globaltimer;\nsetp.lt.u64 %more, %now, %end;\n@%more bra again;\nret;\n}\n";

static void *kernel(void)
{
    static void *function;
    void *module = NULL;
    if (function != NULL)
        return function;
    if (CALL((void **, const void *), 2000, "cuModuleLoadData", "cuModuleLoadData", NULL)(&module, SPIN) == 0)
        CALL((void **, void *, const char *), 2000, "cuModuleGetFunction", "cuModuleGetFunction", NULL)(&function, module, "aliquot_spin");
    return function;
}

static int launch(uint64_t ns, void *stream)
{
    void *params[] = {&ns};
    return CALL((void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
                4000, "cuLaunchKernel", "cuLaunchKernel", "cuLaunchKernel_ptsz")(kernel(), 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
}

static void do_launch(char **args)
{
    int result = 0;
    for (size_t i = 0; i < number(args[1]) && result == 0; i++)
        result = launch(number(args[0]), NULL);
    answer("launch", result);
}

static void do_launchex(char **args)
{
    struct {
        unsigned grid[3], block[3], shared;
        void *stream, *attributes;
        unsigned count;
    } config = {{1, 1, 1}, {32, 1, 1}, 0, NULL, NULL, 0};
    uint64_t ns = number(args[0]);
    void *params[] = {&ns};
    int result = 0;
    for (size_t i = 0; i < number(args[1]) && result == 0; i++)
        result = CALL((const void *, void *, void **, void **), 11060, "cuLaunchKernelEx", "cuLaunchKernelEx", "cuLaunchKernelEx_ptsz")(
            &config, kernel(), params, NULL);
    answer("launchex", result);
}

static int capture(uint64_t ns, void *stream, void **graph)
{
    int result = CALL((void *, int), 10010, "cuStreamBeginCapture", "cuStreamBeginCapture_v2", "cuStreamBeginCapture_v2_ptsz")(stream, 0);
    if (result == 0)
        result = launch(ns, stream);
    if (result == 0)
        result = CALL((void *, void **), 10000, "cuStreamEndCapture", "cuStreamEndCapture", "cuStreamEndCapture_ptsz")(stream, graph);
    return result;
}

static void do_graph(char **args)
{
    void *stream = NULL, *graph = NULL, *exec = NULL;
    kernel(); /* loading is not allowed in a capture */
    int result = CALL((void **, unsigned), 2000, "cuStreamCreate", "cuStreamCreate", NULL)(&stream, 1);
    if (result == 0)
        result = capture(number(args[0]), stream, &graph);
    if (result == 0)
        result = CALL((void **, void *, uint64_t), 11040, "cuGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags", NULL)(
            &exec, graph, 0);
    for (size_t i = 0; i < number(args[1]) && result == 0; i++)
        result = CALL((void *, void *), 10000, "cuGraphLaunch", "cuGraphLaunch", "cuGraphLaunch_ptsz")(exec, stream);
    answer("graph", result);
}

static void do_sync(char **args)
{
    (void)args;
    answer("sync", CALL((void), 2000, "cuCtxSynchronize", "cuCtxSynchronize", NULL)());
}

/* ---- the command line ---- */

static const struct command {
    const char *name;
    int args;
    void (*run)(char **args);
} commands[] = {
    {"info", 0, do_info},       {"total", 0, do_total},       {"alloc", 1, do_alloc},   {"pitch", 2, do_pitch},
    {"managed", 1, do_managed}, {"async", 1, do_async},       {"pool", 1, do_pool},     {"create", 1, do_create},
    {"map", 1, do_map},         {"array", 2, do_array},       {"host", 1, do_host},     {"free", 0, do_free},
    {"fill", 1, do_fill},       {"freeasync", 0, do_freeasync}, {"launch", 2, do_launch}, {"launchex", 2, do_launchex},
    {"graph", 2, do_graph},     {"sync", 0, do_sync},         {"lookup", 3, do_lookup}, {"looked", 0, do_looked}, {"repeat", 2, do_repeat},
    {"until", 1, do_until},     {"wait", 0, do_wait},
};

static void usage(const char *what)
{
    fprintf(stderr, "cudart_client: cannot read the command line at %s\n", what);
    exit(2);
}

static char **options(char **at, char **end)
{
    for (; at < end && strncmp(*at, "--", 2) == 0; at++) {
        if (strcmp(*at, "--per-thread") == 0) {
            per_thread = true;
            continue;
        }
        if (at + 1 == end)
            usage(*at);
        if (strcmp(*at, "--by") == 0)
            by = *++at;
        else if (strcmp(*at, "--order") == 0)
            order_file = *++at;
        else if (strcmp(*at, "--device") == 0)
            device = (int)number(*++at);
        else
            usage(*at);
    }
    return at;
}

/* As libcudart begins: the library, the look-up, cuInit, and the primary context made current. */
static void start(void)
{
    void *context = NULL;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library != NULL && order_file != NULL)
        look_up_in_order(order_file);
    else if (library != NULL)
        *(void **)&get_proc_address = dlsym(library, "cuGetProcAddress_v2");
    if (get_proc_address == NULL) {
        fprintf(stderr, "cudart_client: %s\n", library == NULL ? dlerror() : "no cuGetProcAddress_v2");
        exit(2);
    }
    int result = CALL((unsigned), 2000, "cuInit", "cuInit", NULL)(0);
    if (result == 0)
        result = CALL((void **, int), 7000, "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", NULL)(&context, device);
    if (result == 0)
        result = CALL((void *), 4000, "cuCtxSetCurrent", "cuCtxSetCurrent", NULL)(context);
    answer("start", result);
}

int main(int argc, char **argv)
{
    char **end = argv + argc, **at = options(argv + 1, end);
    setvbuf(stdout, NULL, _IOLBF, 0);
    start();
    while (at < end) {
        size_t i = 0;
        while (i < sizeof commands / sizeof *commands && strcmp(commands[i].name, *at) != 0)
            i++;
        if (i == sizeof commands / sizeof *commands || end - at <= commands[i].args)
            usage(*at);
        commands[i].run(at + 1);
        at += 1 + commands[i].args;
    }
    return 0;
}
