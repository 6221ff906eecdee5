// Memory of this machine or of the cgroup that this process is in, whichever is smaller.
#pragma once

#include "base/units.h"

namespace masu {

struct MachineMemory {
  Bytes total;      // what there is: physical memory or the cgroup's limit
  Bytes available;  // what could be allocated now without pushing others out
};

MachineMemory ReadMachineMemory();
// Resident anonymous and shared memory of this process (RssAnon + RssShmem).
Bytes ResidentMemory();

}  // namespace masu
