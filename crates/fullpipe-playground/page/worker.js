// In the worker: one simulator. The page posts {id, toml} and gets {id, outcome, packets} or {id, problem}.
let ready = null;
self.onmessage = async ({data}) => {
  try {
    if (data.module) {
      ready = wasm_bindgen({module_or_path: data.module});
      await ready;
      if (typeof mine === "function") wasm_bindgen.setController(mine);
      self.postMessage({ready: true, controllers: wasm_bindgen.listControllers()});
      return;
    }
    await ready;
    if (data.check !== undefined) {
      self.postMessage({id: data.id, checked: wasm_bindgen.check(data.check) ?? null});
    } else if (data.save) {
      self.postMessage({id: data.id, bytes: wasm_bindgen.exportLast(data.save, "Playground")});
    } else {
      const began = performance.now();
      const outcome = wasm_bindgen.run(data.toml);
      const packets = wasm_bindgen.lastPackets();
      self.postMessage({id: data.id, outcome, packets, took: performance.now() - began}, packets.map((p) => p.buffer));
    }
  } catch (error) {
    self.postMessage({id: data.id, problem: typeof error === "string" ? error : JSON.stringify({message: String(error && error.message || error), line: null, column: null, help: null})});
  }
};
