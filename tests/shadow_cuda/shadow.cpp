// A make-believe CUDA device: tensors with device "cuda:N" and CUDA dispatch keys whose memory is the
// host's and whose kernels are the CPU's. Real: dispatch, autograd and its device threads, the CUDA
// autocast policy, the refusal to mix devices, a random state a device, counted memory that runs out.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/Resize.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include <atomic>
#include <set>

namespace {

constexpr int kMostDevices = 8;
int devices = 1;
thread_local c10::DeviceIndex current = 0;

// ---- memory -------------------------------------------------------------------------------------
struct Memory {
  std::atomic<int64_t> used{0}, peak{0}, limit{int64_t(1) << 40};
};
Memory memory[kMostDevices];

struct Block {
  int64_t bytes;
  c10::DeviceIndex device;
  c10::DataPtr data;
};

void release_block(void* context) {
  auto* block = static_cast<Block*>(context);
  memory[block->device].used -= block->bytes;
  delete block;
}

c10::DataPtr counted(int64_t bytes, c10::DeviceIndex device) {
  auto& room = memory[device];
  int64_t used = (room.used += bytes);
  if (used > room.limit) {
    room.used -= bytes;
    TORCH_CHECK_WITH(
        OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", bytes, " bytes. GPU ", int(device),
        " has a total capacity of ", room.limit.load(), " bytes");
  }
  int64_t peak = room.peak;
  while (used > peak && !room.peak.compare_exchange_weak(peak, used)) {
  }
  auto* block = new Block{bytes, device, c10::GetCPUAllocator()->allocate(bytes)};
  void* memory_of = block->data.get();
  return {memory_of, block, &release_block, c10::Device(c10::kCUDA, device)};
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override { return counted(bytes, current); }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};
Allocator allocator;

c10::Storage storage_of(int64_t bytes, c10::DeviceIndex device) {
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, counted(bytes, device), &allocator, true);
}

at::Tensor on_device(c10::Storage storage, caffe2::TypeMeta type, at::IntArrayRef sizes, at::IntArrayRef strides,
                     int64_t offset) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CUDA), type);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

// ---- the device that autograd's engine and guards ask -------------------------------------------
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {c10::kCUDA, current}; }
  void setDevice(c10::Device device) const override {
    if (device.index() >= 0) current = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) current = device.index();
  }
  c10::Stream getStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, place(device)); }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getStream(device); }
  c10::Stream getNewStream(c10::Device device, int) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    *event = nullptr;
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
  c10::DeviceIndex deviceCount() const noexcept override { return devices; }

 private:
  static c10::Device place(c10::Device device) {
    return device.index() >= 0 ? device : c10::Device(c10::kCUDA, current);
  }
};
Guard guard;

// ---- random states ------------------------------------------------------------------------------
at::Generator& random_state(c10::DeviceIndex device) {
  static std::vector<at::Generator> states = [] {
    std::vector<at::Generator> made;
    for (int number = 0; number < kMostDevices; ++number) made.push_back(at::detail::createCPUGenerator(0));
    return made;
  }();
  return states[device];
}

// Draws of the CPU kernel come from the device's state, and the CPU's own state stays as it was.
class DeviceDraws {
 public:
  explicit DeviceDraws(c10::DeviceIndex device) : device_(device), default_(at::detail::getDefaultCPUGenerator()) {
    before_ = default_.get_state();
    default_.set_state(random_state(device_).get_state());
  }
  ~DeviceDraws() {
    random_state(device_).set_state(default_.get_state());
    default_.set_state(before_);
  }

 private:
  c10::DeviceIndex device_;
  at::Generator default_;
  at::Tensor before_;
};

// ---- what ATen asks of CUDA ---------------------------------------------------------------------
struct Hooks final : at::CUDAHooksInterface {
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return devices; }
  c10::DeviceIndex current_device() const override { return current; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(c10::DeviceIndex device) const override { current = device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return guard.exchangeDevice({c10::kCUDA, device}).index();
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  int getNumGPUs() const override { return devices; }
  long versionCuDNN() const override { return 0; }
  long versionRuntimeCuDNN() const override { return 0; }
  long versionCUDART() const override { return 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return random_state(device >= 0 ? device : current);
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::detail::createCPUGenerator(); }
};
Hooks shadow_hooks;

// The library's hooks are one object, made before this file is loaded: it gets the methods of ours.
void replace_hooks() {
  auto* theirs = const_cast<at::CUDAHooksInterface*>(&at::detail::getCUDAHooks());
  *reinterpret_cast<void**>(theirs) = *reinterpret_cast<void**>(&shadow_hooks);
}

// ---- operators ----------------------------------------------------------------------------------
struct Call {
  std::vector<std::pair<at::Tensor, at::Tensor>> aliases;  // on the device, on the CPU
  c10::DeviceIndex device = -1;
  std::string mixed;
  bool sparse = false;

  at::Tensor to_cpu(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    if (!tensor.is_cuda()) {
      if (tensor.dim() > 0) mixed = "cpu";
      return tensor;
    }
    if (device >= 0 && tensor.device().index() != device) mixed = "cuda:" + std::to_string(tensor.device().index());
    if (device < 0) device = tensor.device().index();
    for (auto& [on_device, alias] : aliases) {
      if (on_device.is_same(tensor)) return alias;
    }
    at::Tensor alias;
    if (tensor.layout() == at::kSparseCsr) {
      sparse = true;
      alias = at::_sparse_csr_tensor_unsafe(
          to_cpu(tensor.crow_indices()), to_cpu(tensor.col_indices()), to_cpu(tensor.values()), tensor.sizes(),
          tensor.scalar_type(), at::kSparseCsr, at::Device(at::kCPU), false);
    } else {
      const auto& storage = tensor.storage();
      c10::DataPtr borrowed(storage.mutable_data(), at::Device(at::kCPU));
      auto cpu = c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(), storage.nbytes(), std::move(borrowed), c10::GetCPUAllocator(), true);
      alias = at::detail::make_tensor<c10::TensorImpl>(
          c10::Storage(std::move(cpu)), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
      alias.unsafeGetTensorImpl()->set_sizes_and_strides(
          tensor.sizes(), tensor.strides(), tensor.storage_offset());
      if (tensor.is_conj()) alias._set_conj(true);
      if (tensor.is_neg()) alias._set_neg(true);
    }
    aliases.emplace_back(tensor, alias);
    return alias;
  }

  // A kernel may have resized an output or given it other memory.
  void take_resized() {
    for (auto& [tensor, alias] : aliases) {
      if (tensor.layout() != at::kStrided) continue;
      if (alias.storage().data() != tensor.storage().data()) {
        auto storage = storage_of(alias.storage().nbytes(), tensor.device().index());
        std::memcpy(storage.mutable_data(), alias.storage().data(), alias.storage().nbytes());
        tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(storage);
      }
      if (tensor.sizes() != alias.sizes() || tensor.strides() != alias.strides() ||
          tensor.storage_offset() != alias.storage_offset()) {
        tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
            alias.sizes(), alias.strides(), alias.storage_offset());
      }
    }
  }

  at::Tensor to_device(const at::Tensor& result, c10::DeviceIndex index) {
    if (!result.defined() || result.is_cuda()) return result;
    if (result.layout() == at::kSparseCsr) {
      return at::_sparse_csr_tensor_unsafe(
          to_device(result.crow_indices(), index), to_device(result.col_indices(), index),
          to_device(result.values(), index), result.sizes(), result.scalar_type(), at::kSparseCsr,
          at::Device(at::kCUDA, index), false);
    }
    for (auto& [tensor, alias] : aliases) {
      if (alias.is_same(result)) return tensor;
      if (alias.layout() == at::kStrided && alias.storage().is_alias_of(result.storage())) {
        return on_device(tensor.storage(), result.dtype(), result.sizes(), result.strides(), result.storage_offset());
      }
    }
    auto storage = storage_of(result.storage().nbytes(), index);
    std::memcpy(storage.mutable_data(), result.storage().data(), result.storage().nbytes());
    return on_device(storage, result.dtype(), result.sizes(), result.strides(), result.storage_offset());
  }
};

// Operators that may take tensors of several devices, as CUDA's own do.
const std::set<std::string> mixing = {
    "aten::copy_", "aten::_copy_from", "aten::_copy_from_and_resize", "aten::index", "aten::index_put_", "aten::index_put",
    "aten::_index_put_impl_", "aten::_to_copy", "aten::set_"};

void run(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const std::string& name = schema.name();
  Call call;
  auto& arguments = *stack;
  const size_t count = schema.arguments().size(), first = arguments.size() - count;
  std::optional<c10::Device> asked;
  for (size_t number = first; number < arguments.size(); ++number) {
    auto& value = arguments[number];
    if (value.isTensor()) {
      value = call.to_cpu(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> list;
      for (const auto& tensor : value.toTensorVector()) list.push_back(call.to_cpu(tensor));
      value = c10::IValue(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
        list.push_back(tensor.has_value() ? std::optional<at::Tensor>(call.to_cpu(*tensor)) : std::nullopt);
      }
      value = c10::IValue(list);
    } else if (value.isDevice() && value.toDevice().is_cuda()) {
      asked = value.toDevice();
      value = c10::IValue(at::Device(at::kCPU));
    } else if (value.isGenerator()) {
      value = c10::IValue();
    }
  }
  TORCH_CHECK(
      call.mixed.empty() || mixing.count(name), "Expected all tensors to be on the same device, but found at least two devices, cuda:",
      int(call.device), " and ", call.mixed, "! (when checking argument in method ", name, ")");
  c10::DeviceIndex device = call.device;
  if (asked) device = asked->index() >= 0 ? asked->index() : current;
  if (device < 0) device = current;
  {
    std::optional<DeviceDraws> draws;
    if (op.hasTag(at::Tag::nondeterministic_seeded)) draws.emplace(device);
    op.redispatchBoxed(c10::DispatchKeySet(call.sparse ? c10::DispatchKey::SparseCsrCPU : c10::DispatchKey::CPU), stack);
  }
  call.take_resized();
  const size_t returned = schema.returns().size();
  if (name == "aten::_local_scalar_dense" || name == "aten::equal") return;
  for (size_t number = stack->size() - returned; number < stack->size(); ++number) {
    auto& value = (*stack)[number];
    if (value.isTensor()) {
      value = call.to_device(value.toTensor(), device);
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> list;
      for (const auto& tensor : value.toTensorVector()) list.push_back(call.to_device(tensor, device));
      value = c10::IValue(list);
    }
  }
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  auto meta = c10::scalarTypeToTypeMeta(type.value_or(c10::get_default_dtype_as_scalartype()));
  c10::DeviceIndex index = device && device->index() >= 0 ? device->index() : current;
  TORCH_CHECK(index < devices, "CUDA error: invalid device ordinal");
  auto bytes = at::detail::computeStorageNbytes(sizes, strides, meta.itemsize());
  return on_device(storage_of(bytes, index), meta, sizes, strides, 0);
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pinned,
                 std::optional<at::MemoryFormat> format) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (int64_t axis = int64_t(sizes.size()) - 2; axis >= 0; --axis) {
    strides[axis] = strides[axis + 1] * std::max<int64_t>(sizes[axis + 1], 1);
  }
  auto made = empty_strided(sizes, strides, type, layout, device, pinned);
  if (format && *format != at::MemoryFormat::Contiguous && *format != at::MemoryFormat::Preserve) {
    made.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  return made;
}

const at::Tensor& resize_(const at::Tensor& tensor, at::IntArrayRef sizes, std::optional<at::MemoryFormat>) {
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(sizes);
  auto bytes = impl->numel() * impl->itemsize() + impl->storage_offset() * impl->itemsize();
  if (bytes > int64_t(tensor.storage().nbytes())) {
    auto grown = storage_of(bytes, tensor.device().index());
    std::memcpy(grown.mutable_data(), tensor.storage().data(), tensor.storage().nbytes());
    impl->set_storage_keep_dtype(grown);
  }
  return tensor;
}

// Kernels that only describe memory anew run as they are; the others below are written here.
const std::set<std::string> untouched = {
    "aten::view", "aten::as_strided", "aten::_reshape_alias", "aten::unfold", "aten::view_as_real",
    "aten::view_as_complex", "aten::record_stream", "aten::is_set_to", "aten::set_", "aten::values",
    "aten::crow_indices", "aten::col_indices", "aten::_nnz", "aten::is_pinned", "aten::_pin_memory"};
const std::set<std::string> written = {
    "aten::empty.memory_format", "aten::empty_strided", "aten::resize_"};

std::vector<std::unique_ptr<torch::Library>> libraries;

void install(int count) {
  devices = count;
  replace_hooks();
  c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::kCUDA)].store(&guard);
  c10::SetAllocator(c10::kCUDA, &allocator, 255);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (auto key : {c10::DispatchKey::CUDA, c10::DispatchKey::SparseCsrCUDA}) {
    auto library = std::make_unique<torch::Library>(
        torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    for (const auto& name : dispatcher.getAllOpNames()) {
      if (name.name.rfind("aten::", 0) != 0 || untouched.count(name.name)) continue;
      auto op = dispatcher.findOp(name);
      if (!op || !op->hasSchema() || !op->hasKernelForDispatchKey(key)) continue;
      std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
      if (key == c10::DispatchKey::CUDA && written.count(full)) continue;
      library->impl(full.c_str() + 6, torch::CppFunction::makeFromBoxedFunction<&run>());
    }
    if (key == c10::DispatchKey::CUDA) {
      library->impl("empty.memory_format", TORCH_FN(empty));
      library->impl("empty_strided", TORCH_FN(empty_strided));
      library->impl("resize_", TORCH_FN(resize_));
      library->impl("copy_", torch::CppFunction::makeFromBoxedFunction<&run>());  // has one kernel for all devices
    }
    libraries.push_back(std::move(library));
  }
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("install", &install, "Take the place of CUDA in this process, with this many devices.");
  module.def("current_device", [] { return int(current); });
  module.def("set_device", [](int device) { current = c10::DeviceIndex(device); });
  module.def("memory_used", [](int device) { return memory[device].used.load(); });
  module.def("memory_peak", [](int device) { return memory[device].peak.load(); });
  module.def("reset_peak", [](int device) { memory[device].peak = memory[device].used.load(); });
  module.def("memory_limit", [](int device) { return memory[device].limit.load(); });
  module.def("limit_memory", [](int device, int64_t bytes) { memory[device].limit = bytes; });
  module.def("seed", [](int device, uint64_t seed) { random_state(device).set_current_seed(seed); });
  module.def("random_state", [](int device) { return random_state(device).get_state(); });
  module.def("set_random_state", [](int device, at::Tensor state) { random_state(device).set_state(state); });
}
