"use strict";
// Search in pages opened as files: browsers start no Worker there, so the search script runs in a hidden frame.
window.IFrameWorker = class extends EventTarget {
  constructor(address) {
    super();
    this.waiting = [];
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    this.frame.title = "Search";
    document.body.append(this.frame);
    const inside = this.frame.contentWindow;
    // What the script reports with `postMessage` are events of this object.
    inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    inside.importScripts = (...addresses) => Promise.all(addresses.map((one) => this.load(one)));
    this.load(address).then(() => {
      this.loaded = true;
      for (const data of this.waiting.splice(0)) this.postMessage(data);
    });
  }

  load(address) {
    const inner = this.frame.contentDocument;
    const script = inner.createElement("script");
    script.src = new URL(address, document.baseURI).href;
    return new Promise((done, fail) => {
      script.addEventListener("load", done);
      script.addEventListener("error", fail);
      inner.body.append(script);
    });
  }

  postMessage(data) {
    if (!this.loaded) this.waiting.push(data);
    else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
  }

  terminate() { this.frame.remove(); }
};
if (location.protocol === "file:") window.Worker = window.IFrameWorker;
