/* What is shared with other processes, asked within one; peers, green contexts, multicast. */
#include "driver.h"

#define MIB ((size_t)1 << 20)

struct handle {
    char bytes[64];
};

static void physical(void)
{
    struct allocation_prop prop = {.type = 1, .location = {1, 0}};
    uint64_t handle = 0, again = 0;
    int fd = -1;
    long long before = free_bytes();
    ASK((uint64_t *, size_t, const void *, uint64_t), 10020, "cuMemCreate")(&handle, 4 * MIB, &prop, 0);
    say("share.export.not_asked_for",
        ASK((void *, uint64_t, int, uint64_t), 10020, "cuMemExportToShareableHandle")(&fd, handle, 1, 0));
    ASK((uint64_t), 10020, "cuMemRelease")(handle);
    prop.handle_types = 1;
    say("share.create", ASK((uint64_t *, size_t, const void *, uint64_t), 10020, "cuMemCreate")(&handle, 4 * MIB, &prop, 0));
    say("share.export.flags", ASK((void *, uint64_t, int, uint64_t), 10020, "cuMemExportToShareableHandle")(&fd, handle, 1, 1));
    say("share.export", ASK((void *, uint64_t, int, uint64_t), 10020, "cuMemExportToShareableHandle")(&fd, handle, 1, 0));
    say("share.import", ASK((uint64_t *, intptr_t, int), 10020, "cuMemImportFromShareableHandle")(&again, fd, 1));
    say("share.import.same", handle == again);
    say("share.import.cost", before - free_bytes());
    ASK((uint64_t), 10020, "cuMemRelease")(handle);
    say("share.import.left.cost", before - free_bytes());
    ASK((uint64_t), 10020, "cuMemRelease")(again);
    say("share.import.none.cost", before - free_bytes());
    say("share.import.garbage", ASK((uint64_t *, intptr_t, int), 10020, "cuMemImportFromShareableHandle")(&again, 0, 1));
}

static void ipc(void)
{
    struct handle handle = {{0}};
    pointer p = 0, opened = 0;
    void *event = NULL;
    ASK((pointer *, size_t), 3020, "cuMemAlloc")(&p, MIB);
    say("share.ipc.get", ASK((void *, pointer), 4010, "cuIpcGetMemHandle")(&handle, p));
    say("share.ipc.open.own", ASK((pointer *, struct handle, unsigned), 11000, "cuIpcOpenMemHandle")(&opened, handle, 1));
    say("share.ipc.close.unknown", ASK((pointer), 4010, "cuIpcCloseMemHandle")(p));
    say("share.ipc.free", ASK((pointer), 3020, "cuMemFree")(p));
    ASK((pointer *, size_t, void *), 11020, "cuMemAllocAsync")(&p, MIB, NULL);
    say("share.ipc.get.pool", ASK((void *, pointer), 4010, "cuIpcGetMemHandle")(&handle, p));
    ASK((void **, unsigned), 2000, "cuEventCreate")(&event, 0);
    say("share.ipc.event.plain", ASK((void *, void *), 4010, "cuIpcGetEventHandle")(&handle, event));
}

static void peers(void)
{
    void *context = NULL;
    ASK((void **), 4000, "cuCtxGetCurrent")(&context);
    say("share.peer.self", ASK((void *, unsigned), 4000, "cuCtxEnablePeerAccess")(context, 0));
    say("share.peer.flags", ASK((void *, unsigned), 4000, "cuCtxEnablePeerAccess")(context, 1));
    say("share.peer.NULL", ASK((void *, unsigned), 4000, "cuCtxEnablePeerAccess")(NULL, 0));
}

static void green(void)
{
    struct resource {
        int type;
        unsigned char padding[92];
        unsigned sm[10];
        void *next;
    } whole, part, rest;
    unsigned groups = 1;
    void *desc = NULL, *context = NULL;
    say("share.green.resource", ASK((int, void *, int), 12040, "cuDeviceGetDevResource")(0, &whole, 1));
    say("card.share.green.multiprocessors", whole.sm[0]);
    say("share.green.resource.0", ASK((int, void *, int), 12040, "cuDeviceGetDevResource")(0, &part, 0));
    say("share.green.split", ASK((void *, unsigned *, const void *, void *, unsigned, unsigned), 12040,
                                 "cuDevSmResourceSplitByCount")(&part, &groups, &whole, &rest, 0, 9));
    say("share.green.split.size", part.sm[0]);
    say("share.green.desc", ASK((void **, void *, unsigned), 12040, "cuDevResourceGenerateDesc")(&desc, &part, 1));
    say("share.green.create.flags0", ASK((void **, void *, int, unsigned), 12040, "cuGreenCtxCreate")(&context, desc, 0, 0));
    long long before = free_bytes();
    say("share.green.create", ASK((void **, void *, int, unsigned), 12040, "cuGreenCtxCreate")(&context, desc, 0, 1));
    say("card.share.green.cost", before - free_bytes());
    say("share.green.destroy", ASK((void *), 12040, "cuGreenCtxDestroy")(context));
}

void probe_share(void)
{
    need_context();
    physical();
    ipc();
    peers();
    green();
}
