{{/*
The extender's container. In mode own it is a sidecar of kube-scheduler, in mode existing the pod's only container.
aliquot-supervise starts the extender again at once when it has died or hangs: the kubelet's back-off would take minutes.
*/}}
{{- define "aliquot.extenderContainer" -}}
{{- $root := . -}}
{{- $extender := .Values.scheduler.extender -}}
{{- $own := eq .Values.scheduler.mode "own" -}}
- name: extender
  {{- if $own }}
  # A sidecar: kube-scheduler starts when it answers, and ends before it.
  restartPolicy: Always
  {{- end }}
  image: {{ include "aliquot.image" (list $root $extender.image) | quote }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  command:
    - aliquot-supervise
    - --health=https://localhost:9443/healthz
    - --log-level={{ $extender.logging.level | default $root.Values.logging.level }}
    - --log-format={{ $extender.logging.format | default $root.Values.logging.format }}
    - --
    - aliquot-scheduler-ext
  args:
    - --host=0.0.0.0
    - --port=9443
    - --tls-cert=/etc/aliquot/tls/tls.crt
    - --tls-key=/etc/aliquot/tls/tls.key
    # kube-scheduler and the other replicas show this certificate, too; Prometheus has one that opens metrics alone.
    - --client-ca=/etc/aliquot/tls/ca.crt
    - --client-names
    - aliquot-scheduler
    - prometheus=metrics
    - aliquot-prometheus=metrics
    - --accept-tokens
    # With one replica, too: while it is replaced there are two.
    - --leader-elect
    - --tls-ca=/etc/aliquot/tls/ca.crt
    - --advertise-url=https://$(POD_IP):9443
    - --tls-server-name={{ include "aliquot.schedulerHost" $root }}
    - --identity=$(POD_NAME)
    - --lease-namespace={{ $root.Release.Namespace }}
    - --lease-seconds={{ $extender.leaseSeconds }}
    {{- if $own }}
    # The kube-scheduler beside it asks nobody else, so it may as well wait while another replica comes to lead.
    - --hold-seconds=9
    - --kube-scheduler-health=https://127.0.0.1:10259/healthz
    {{- end }}
    - --node-policy={{ $extender.nodePolicy }}
    - --card-policy={{ $extender.cardPolicy }}
    - --preemption={{ $extender.preemption }}
    - --preemption-seconds={{ $extender.preemptionSeconds }}
    - --min-run-seconds={{ $extender.minRunSeconds }}
    - --reclaims-per-minute={{ $extender.reclaimsPerMinute }}
    - --group-seconds={{ $extender.groupSeconds }}
    - --group-saving-seconds={{ $extender.groupSavingSeconds }}
    - --group-grace-seconds={{ $extender.groupGraceSeconds }}
    {{- if not $extender.cardMetrics }}
    - --no-card-metrics
    {{- end }}
    {{- with include "aliquot.resourceDomainArg" $root.Values }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with $root.Values.dialects }}
    - --dialects
    {{- range . }}
    - {{ . }}
    {{- end }}
    {{- end }}
    {{- with $extender.volcano }}
    - --volcano
    {{- range . }}
    - {{ . }}
    {{- end }}
    {{- end }}
    {{- include "aliquot.commonArgs" (list $root $extender) | nindent 4 }}
  env:
    - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  ports:
    - {name: extender, containerPort: 9443}
  {{- include "aliquot.startupProbe" 9443 | nindent 2 }}
  # aliquot-supervise sees to a process that hangs, and the process itself to a loop that does, within 8 s. This is for a
  # container that hangs as a whole, and hears no signal: the kube-scheduler beside it may hold its Lease meanwhile.
  livenessProbe:
    httpGet: {path: /healthz, port: extender, scheme: HTTPS}
    periodSeconds: 1
    timeoutSeconds: 1
    failureThreshold: 9
    terminationGracePeriodSeconds: 1
  readinessProbe: {httpGet: {path: /readyz, port: extender, scheme: HTTPS}, periodSeconds: 5, timeoutSeconds: 5}
  resources:
    {{- toYaml $extender.resources | nindent 4 }}
  securityContext:
    {{- include "aliquot.restrictedContainer" $root | nindent 4 }}
  volumeMounts:
    - {name: tls, mountPath: /etc/aliquot/tls, readOnly: true}
    - {name: tmp, mountPath: /tmp}
{{- end -}}
