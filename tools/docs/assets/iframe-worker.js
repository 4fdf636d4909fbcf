// Makes the search work for pages that are opened from the disk.
//
// Browsers start no Worker for file: addresses. This class implements the part of Worker's
// interface that the theme uses, and runs the script in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      // Messages from the script in the frame become messages of this object.
      this.inside.postMessage = (data) => {
        setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })));
      };
      const script = this.inside.document.createElement("script");
      script.src = url;
      this.loaded = new Promise((resolve, reject) => {
        script.onload = resolve;
        script.onerror = () => reject(new Error(`${url} cannot be loaded`));
      });
      this.inside.document.body.append(script);
    }

    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
